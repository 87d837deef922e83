// The program's first thread, which is a task from the first pthread_create on: it stays who it was to the program, to
// the C library and to other processes. Exits with 0, or says what failed.
#define _GNU_SOURCE
#include "check.h"
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// The number of the kernel thread, which the library does not answer for.
static long kernel_thread(void) {
  long number;
  __asm__ volatile("syscall" : "=a"(number) : "a"(SYS_gettid) : "rcx", "r11", "memory");
  return number;
}

static pthread_t first;
static __thread int local = 1;
static sem_t sem;

static void *nothing(void *arg) { return arg; }

static void run(void *(*function)(void *), void *argument) {
  pthread_t thread;
  void *result;
  IS(pthread_create(&thread, NULL, function, argument), 0);
  IS(pthread_join(thread, &result), 0);
}

// What begins before the first pthread_create.
static char handler_stack[1 << 16];
static pthread_mutex_t robust;
static double rounded;

static void prepare(void) {
  stack_t stack = {.ss_sp = handler_stack, .ss_size = sizeof handler_stack};
  CHECK(sigaltstack(&stack, NULL) == 0);
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR2);
  CHECK(sigprocmask(SIG_BLOCK, &blocked, NULL) == 0);
  pthread_mutexattr_t attr;
  IS(pthread_mutexattr_init(&attr), 0);
  IS(pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST), 0);
  IS(pthread_mutex_init(&robust, &attr), 0);
  IS(pthread_mutex_lock(&robust), 0);
  IS(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL), 0);
  local = 7;
  first = pthread_self();
}

static void *asks_of_first(void *arg) {
  char name[16];
  IS(pthread_getname_np(first, name, sizeof name), 0);
  CHECK(strcmp(name, "first-of-all") == 0);
  IS(pthread_kill(first, 0), 0);
  IS(pthread_mutex_trylock(&robust), EBUSY);
  IS(pthread_cancel(first), 0);
  return arg;
}

static void stays_who_it_was(void) {
  CHECK(pthread_equal(first, pthread_self()));
  IS(gettid(), getpid());
  IS(syscall(SYS_gettid), getpid());
  IS(local, 7);
  stack_t stack;
  CHECK(sigaltstack(NULL, &stack) == 0 && stack.ss_sp == handler_stack && stack.ss_size == sizeof handler_stack);
  sigset_t blocked;
  CHECK(sigprocmask(SIG_BLOCK, NULL, &blocked) == 0);
  CHECK(sigismember(&blocked, SIGUSR2) && !sigismember(&blocked, SIGUSR1) && !sigismember(&blocked, SIGINT));
  // It has spent time before.
  struct timespec used;
  CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used) == 0 && used.tv_sec * 1000 + used.tv_nsec / 1000000 >= 20);
  pthread_attr_t attr;
  void *low;
  size_t size;
  IS(pthread_getattr_np(first, &attr), 0);
  IS(pthread_attr_getstack(&attr, &low, &size), 0);
  CHECK((char *)low < (char *)&attr && (char *)&attr < (char *)low + size);
  // Its name is the process's.
  CHECK(prctl(PR_SET_NAME, "first-of-all") == 0);
  char name[16] = "";
  int file = open("/proc/self/comm", O_RDONLY);
  CHECK(file >= 0 && read(file, name, 15) > 0 && strcmp(name, "first-of-all\n") == 0);
  close(file);
  run(asks_of_first, NULL);
  // The request to cancel it waits: the state from before holds.
  sleep(0);
  IS(pthread_mutex_unlock(&robust), 0);
  IS(pthread_join(first, NULL), EDEADLK);
}

// Its stack grows: by more than has been touched before, on whatever kernel thread.
static long deep(int levels) {
  volatile char frame[1 << 16];
  memset((void *)frame, levels, sizeof frame);
  sched_yield();
  return levels ? deep(levels - 1) + frame[levels] : 0;
}

static volatile sig_atomic_t handled_by, handled;
static void handle(int signal, siginfo_t *info, void *context) {
  (void)info, (void)context;
  handled_by = gettid();
  handled = signal;
}

static void *sends(void *to) {
  switch ((long)to) {
  case 0: IS(kill(getpid(), SIGUSR1), 0); break;
  case 1: IS(pthread_kill(first, SIGUSR1), 0); break;
  case 2: IS(tgkill(getpid(), getpid(), SIGUSR1), 0); break;
  }
  return NULL;
}

static void gets_signals(void) {
  struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
  // Those that another thread sends to the process may come to it instead.
  for (long how = 0; how < 3; how++) {
    handled = 0;
    run(sends, (void *)how);
    while (!handled) sched_yield();
    if (how > 0) IS(handled_by, getpid());
  }
  // From another process, by number.
  for (int to_thread = 0; to_thread < 2; to_thread++) {
    handled = 0;
    pid_t child = fork(), parent = getppid();
    if (child == 0) {
      _exit(to_thread ? syscall(SYS_tgkill, parent, parent, SIGUSR1) : kill(parent, SIGUSR1));
    }
    int status;
    while (waitpid(child, &status, 0) < 0) CHECK(errno == EINTR);
    IS(status, 0);
    while (!handled) sched_yield();
    IS(handled_by, getpid());
  }
  // What it sends to its own process it has handled when the call returns.
  int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
  for (int how = 0; how < 4; how++) {
    handled = 0;
    switch (how) {
    case 0: IS(kill(getpid(), SIGUSR1), 0); break;
    case 1: IS(syscall(SYS_kill, getpid(), SIGUSR1), 0); break;
    case 2: IS(syscall(SYS_pidfd_send_signal, self, SIGUSR1, NULL, 0), 0); break;
    case 3: IS(raise(SIGUSR1), 0); break;
    }
    IS(handled, SIGUSR1);
  }
  close(self);
  // What it blocks waits for it.
  IS(tgkill(getpid(), getpid(), SIGUSR2), 0);
  sigset_t pending, wanted;
  CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGUSR2));
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGUSR2);
  IS(sigwaitinfo(&wanted, NULL), SIGUSR2);
}

static sigjmp_buf before;

static unsigned long kernel_mask(void) {
  unsigned long mask;
  CHECK(syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &mask, 8) == 0);
  return mask;
}

// A jump back to before the first pthread_create restores the mask of then, and leaves that of the worker alone.
static unsigned long mask_before_jump;
static void jumps_back(int made) {
  if (made == 0) return;
  IS(kernel_mask(), mask_before_jump);
  handled = 0;
  IS(kill(getpid(), SIGUSR1), 0);
  while (!handled) sched_yield();
  IS(handled_by, getpid());
}

// A child has it as a kernel thread, and makes a task of it again.
static void *in_child(void *arg) {
  IS(sem_post(&sem), 0);
  return arg;
}

static void forks(int levels) {
  // The buffer is a task's, and the child, who jumps, a kernel thread.
  sigjmp_buf in_parent;
  int jumped = sigsetjmp(in_parent, 1);
  pid_t child = jumped ? 0 : fork();
  CHECK(child >= 0);
  if (child == 0) {
    IS(gettid(), getpid());
    IS(kernel_thread(), getpid());
    CHECK(pthread_equal(first, pthread_self()) && local == 7);
    if (!jumped) siglongjmp(in_parent, 1);
    sigset_t mask;
    CHECK(pthread_sigmask(SIG_BLOCK, NULL, &mask) == 0);
    CHECK(!sigismember(&mask, SIGUSR1) && sigismember(&mask, SIGUSR2));
    IS(setgid(getgid()), 0);
    IS(sem_init(&sem, 0, 0), 0);
    run(in_child, NULL);
    IS(sem_wait(&sem), 0);
    IS(gettid(), getpid());
    deep(20);
    if (levels > 0) forks(levels - 1);
    if (levels == 0) pthread_exit(NULL);
    _exit(0);
  }
  int status;
  IS(waitpid(child, &status, 0), child);
  IS(status, 0);
}

// Users of all kernel threads of the process.
static void all_are(const char *users) {
  DIR *tasks = opendir("/proc/self/task");
  CHECK(tasks);
  struct dirent *entry;
  while ((entry = readdir(tasks))) {
    char path[300], line[200];
    if (entry->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
    FILE *status = fopen(path, "r");
    if (!status) continue;
    while (fgets(line, sizeof line, status)) {
      if (strncmp(line, "Uid:", 4)) continue;
      if (strcmp(line + 5, users)) {
        printf("%s: %s, not %s", path, line, users);
        fflush(stdout);
        _Exit(1);
      }
    }
    fclose(status);
  }
  closedir(tasks);
}

static void *becomes(void *user) {
  if (getuid() == 0) IS(seteuid((uid_t)(long)user), 0);
  return NULL;
}

// The whole process changes, whichever thread asks: also the kernel thread that stands for this one.
static void changes_users(void) {
  if (getuid() != 0) {
    IS(setuid(getuid()), 0);
    return;
  }
  pid_t child = fork();
  if (child == 0) {
    run(nothing, NULL);
    run(becomes, (void *)65534L);
    all_are("0\t65534\t0\t65534\n");
    IS(seteuid(0), 0);
    all_are("0\t0\t0\t0\n");
    gid_t group = 65534;
    IS(setgroups(1, &group), 0);
    IS(initgroups("nobody", 65534), 0);
    IS(setgid(65534), 0);
    IS(setresuid(65534, 65534, 65534), 0);
    all_are("65534\t65534\t65534\t65534\n");
    IS(setuid(0), -1);
    IS(errno, EPERM);
    pthread_exit(NULL);
  }
  int status;
  IS(waitpid(child, &status, 0), child);
  IS(status, 0);
}

static void *waits_for_first(void *arg) {
  // It can be joined, with what it left by.
  void *result;
  IS(pthread_join(first, &result), 0);
  IS(result, arg);
  if (arg == (void *)5) {
    // The kernel thread with the process's number has ended, and the process has not.
    char line[200];
    int state = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status)) state |= strncmp(line, "State:\tZ", 8) == 0;
    fclose(status);
    CHECK(state);
  }
  // Signals to the process come to who is left.
  struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO};
  CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
  handled = 0;
  IS(kill(getpid(), SIGUSR1), 0);
  while (!handled) sched_yield();
  IS(handled_by, gettid());
  pthread_t more;
  IS(pthread_create(&more, NULL, nothing, NULL), 0);
  IS(pthread_join(more, NULL), 0);
  return NULL;
}

static pthread_key_t key;
static int cleaned;

static void destroys(void *value) {
  cleaned += (long)value;
  // In the thread itself: as the C library's.
  IS(kernel_thread(), getpid());
  IS(gettid(), getpid());
}

static void cleans(void *by) { cleaned += (long)by; }

static void at_end(void) {
  if (cleaned != 111 && cleaned != 0) {
    printf("cleaned up %d\n", cleaned);
    fflush(stdout);
    _Exit(1);
  }
}

static void *cancels(void *arg) {
  IS(pthread_cancel(first), 0);
  return waits_for_first(arg);
}

// In a child: leaves by `how`, while another thread goes on.
static void ends(const char *how) {
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    IS(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL), 0);
    pthread_t other;
    IS(pthread_key_create(&key, destroys), 0);
    run(nothing, NULL);
    IS(pthread_setspecific(key, (void *)100), 0);
    atexit(at_end);
    int is_cancelled = strcmp(how, "exit") != 0;
    void *result = is_cancelled ? PTHREAD_CANCELED : (void *)5;
    IS(pthread_create(&other, NULL, is_cancelled ? cancels : waits_for_first, result), 0);
    pthread_cleanup_push(cleans, (void *)11);
    if (!is_cancelled) pthread_exit((void *)5);
    if (strcmp(how, "cancelled in a join") == 0) pthread_join(other, NULL);
    for (;;) pause();
    pthread_cleanup_pop(0);
  }
  int status;
  IS(waitpid(child, &status, 0), child);
  IS(status, 0);
}

static void works(void) {
  volatile double x = 1;
  struct timespec used;
  do {
    for (int i = 0; i < 10000; i++) x = x * 1.0001;
    CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used) == 0);
  } while (used.tv_sec == 0 && used.tv_nsec < 20000000);
  rounded = x;
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  prepare();
  works();
  int jumped = sigsetjmp(before, 1);
  if (!jumped) run(nothing, NULL);
  stays_who_it_was();
  CHECK((kernel_thread() == getpid()) == (!getenv("LD_PRELOAD") || getenv("HEDDLE_PTHREAD_MAIN")));
  deep(60);
  gets_signals();
  jumps_back(jumped);
  if (!jumped) {
    IS(pthread_mutex_lock(&robust), 0);
    mask_before_jump = kernel_mask();
    siglongjmp(before, 1);
  }
  forks(2);
  changes_users();
  ends("exit");
  ends("cancelled");
  ends("cancelled in a join");
  return 0;
}
