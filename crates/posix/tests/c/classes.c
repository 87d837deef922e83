// The order in which threads run on one CPU whose code is in a library or here. For a strict policy and one worker.
// Prints "library first" or "program first".
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <unistd.h>

int start_in_module(int way, void (*run)(int), int nth);

enum { EACH = 3 };
static int order[2 * EACH];
static _Atomic int count;

static void note(int nth) { order[count++] = nth; }

static void *own(void *arg) {
  note((int)(long)arg);
  return NULL;
}

// Starts the library's threads, then the program's, without a wait.
static void *starts_all(void *arg) {
  (void)arg;
  pthread_t threads[EACH];
  for (int i = 0; i < EACH; i++) CHECK(start_in_module(i, note, i));
  for (long i = 0; i < EACH; i++) IS(pthread_create(&threads[i], NULL, own, (void *)(i + EACH)), 0);
  for (int i = 0; i < EACH; i++) IS(pthread_join(threads[i], NULL), 0);
  while (count < 2 * EACH) usleep(1000);
  return NULL;
}

int main(void) {
  pthread_t thread;
  IS(pthread_create(&thread, NULL, starts_all, NULL), 0);
  IS(pthread_join(thread, NULL), 0);
  int library_first = 1, program_first = 1;
  for (int i = 0; i < EACH; i++) {
    library_first &= order[i] < EACH;
    program_first &= order[i] >= EACH;
  }
  CHECK(library_first || program_first);
  puts(library_first ? "library first" : "program first");
  return 0;
}
