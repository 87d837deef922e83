// Files, their locks, reused descriptor numbers, cancelled reads, and many waiting threads. Exits with 0, or says what
// failed.
#define _GNU_SOURCE
#include "check.h"
#include <dirent.h>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <pwd.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pthread_t start(void *(*run)(void *), void *arg) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, run, arg) == 0);
  return thread;
}

static void *join(pthread_t thread) {
  void *result;
  CHECK(pthread_join(thread, &result) == 0);
  return result;
}

static int temporary(void) {
  char name[] = "/tmp/heddle-files-XXXXXX";
  int fd = mkstemp(name);
  CHECK(fd >= 0 && unlink(name) == 0);
  return fd;
}

static void *files(void *arg) {
  (void)arg;
  enum { SIZE = 1 << 20 };
  static unsigned char data[SIZE], back[SIZE + 10];
  for (int i = 0; i < SIZE; i++) data[i] = (unsigned char)(i * 31 + (i >> 12));
  int fd = temporary();
  CHECK(write(fd, data, SIZE) == SIZE);
  CHECK(fsync(fd) == 0 && fdatasync(fd) == 0);
  // Half of it must come from the disk.
  CHECK(posix_fadvise(fd, SIZE / 2, 0, POSIX_FADV_DONTNEED) == 0);
  CHECK(pread(fd, back, SIZE + 10, 0) == SIZE && memcmp(data, back, SIZE) == 0);
  CHECK(pread(fd, back, 100, SIZE - 50) == 50 && memcmp(data + SIZE - 50, back, 50) == 0);
  CHECK(pread(fd, back, 100, SIZE) == 0);
  CHECK(pread(fd, back, 100, -1) == -1 && errno == EINVAL);
  CHECK(pread(fd, back, 0, 0) == 0);
  CHECK(lseek(fd, 0, SEEK_SET) == 0);
  CHECK(posix_fadvise(fd, SIZE / 4, 0, POSIX_FADV_DONTNEED) == 0);
  memset(back, 0, sizeof back);
  CHECK(read(fd, back, SIZE + 10) == SIZE && memcmp(data, back, SIZE) == 0);
  CHECK(read(fd, back, 10) == 0 && lseek(fd, 0, SEEK_CUR) == SIZE);
  enum { PARTS = 40 };
  struct iovec parts[PARTS];
  memset(back, 0, sizeof back);
  for (int i = 0; i < PARTS; i++) parts[i] = (struct iovec){back + i * 1000, 1000};
  CHECK(preadv(fd, parts, PARTS, 5) == PARTS * 1000 && memcmp(data + 5, back, PARTS * 1000) == 0);
  CHECK(lseek(fd, 7, SEEK_SET) == 7);
  CHECK(readv(fd, parts, PARTS) == PARTS * 1000 && memcmp(data + 7, back, PARTS * 1000) == 0);
  CHECK(preadv2(fd, parts, 1, 9, 0) == 1000 && memcmp(data + 9, back, 1000) == 0);
  CHECK(pwrite(fd, "xyz", 3, 100) == 3 && pread(fd, back, 3, 100) == 3 && !memcmp(back, "xyz", 3));
  char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(map != MAP_FAILED);
  map[0] = 'm';
  CHECK(msync(map, 4096, MS_SYNC) == 0 && pread(fd, back, 1, 0) == 1 && back[0] == 'm');
  munmap(map, 4096);
  close(fd);

  fd = memfd_create("files", 0);
  CHECK(write(fd, data, 5000) == 5000);
  for (int i = 0; i < 3; i++) CHECK(pread(fd, back, 6000, 0) == 5000 && !memcmp(back, data, 5000));
  CHECK(lseek(fd, 0, SEEK_SET) == 0 && read(fd, back, 6000) == 5000 && read(fd, back, 1) == 0);
  close(fd);
  for (int i = 0; i < 2; i++) {
    fd = open("/proc/self/status", O_RDONLY);
    CHECK(read(fd, back, 5) == 5 && memcmp(back, "Name:", 5) == 0);
    CHECK(pread(fd, back, 5, 0) == 5);
    close(fd);
  }
  fd = open("/dev/zero", O_RDWR);
  CHECK(read(fd, back, 100) == 100 && back[99] == 0 && write(fd, back, 100) == 100);
  close(fd);
  fd = open("/", O_RDONLY);
  CHECK(read(fd, back, 100) == -1 && errno == EISDIR);
  close(fd);
  int pipe_fds[2];
  CHECK(pipe(pipe_fds) == 0);
  CHECK(pread(pipe_fds[0], back, 1, 0) == -1 && errno == ESPIPE);
  CHECK(write(pipe_fds[0], back, 1) == -1 && errno == EBADF);
  CHECK(read(pipe_fds[1], back, 1) == -1 && errno == EBADF);
  close(pipe_fds[0]), close(pipe_fds[1]);
  CHECK(read(pipe_fds[0], back, 1) == -1 && errno == EBADF);
  CHECK(recv(0, back, 1, 0) == -1 && errno == ENOTSOCK);
  return NULL;
}

// Locks: another thread waits for one that a descriptor holds.

static int locked;
static char lock_name[] = "/tmp/heddle-locks-XXXXXX";

static void *wait_for_flock(void *arg) {
  (void)arg;
  int fd = open(lock_name, O_RDWR);
  CHECK(fd >= 0);
  CHECK(flock(fd, LOCK_EX | LOCK_NB) == -1 && errno == EWOULDBLOCK);
  CHECK(flock(fd, LOCK_EX) == 0);
  CHECK(__atomic_load_n(&locked, __ATOMIC_ACQUIRE) == 0);
  close(fd);
  return NULL;
}

static void *wait_for_ofd(void *arg) {
  (void)arg;
  int fd = open(lock_name, O_RDWR);
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  CHECK(fcntl(fd, F_OFD_SETLK, &lock) == -1 && (errno == EAGAIN || errno == EACCES));
  CHECK(fcntl(fd, F_OFD_SETLKW, &lock) == 0);
  CHECK(__atomic_load_n(&locked, __ATOMIC_ACQUIRE) == 0);
  close(fd);
  return NULL;
}

static void *hold_locks(void *arg) {
  (void)arg;
  int fd = open(lock_name, O_RDWR);
  CHECK(fd >= 0 && flock(fd, LOCK_EX) == 0);
  locked = 1;
  pthread_t waiter = start(wait_for_flock, NULL);
  usleep(30000);
  __atomic_store_n(&locked, 0, __ATOMIC_RELEASE);
  CHECK(flock(fd, LOCK_UN) == 0);
  join(waiter);
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  CHECK(fcntl(fd, F_OFD_SETLKW, &lock) == 0);
  locked = 1;
  waiter = start(wait_for_ofd, NULL);
  usleep(30000);
  __atomic_store_n(&locked, 0, __ATOMIC_RELEASE);
  lock.l_type = F_UNLCK;
  CHECK(fcntl(fd, F_OFD_SETLK, &lock) == 0);
  join(waiter);
  CHECK(lockf(fd, F_LOCK, 10) == 0 && lockf(fd, F_TEST, 10) == 0 && lockf(fd, F_ULOCK, 10) == 0);
  close(fd);
  return NULL;
}

// The same number, another kind.

static void *reuse(void *arg) {
  (void)arg;
  char buf[8], none = 0;
  uint64_t one = 1;
  int first = -1;
  for (int i = 0; i < 30; i++) {
    int fds[2] = {-1, -1};
    switch (i % 5) {
    case 0: CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0); break;
    case 1: CHECK(pipe(fds) == 0); break;
    case 2: fds[0] = temporary(); break;
    case 3: fds[0] = eventfd(0, 0); break;
    case 4: fds[0] = open("/dev/null", O_RDWR); break;
    }
    if (first < 0) first = fds[0];
    CHECK(fds[0] == first);
    if (i % 5 < 2) {
      CHECK(write(fds[1], "12345", 5) == 5);
      CHECK(read(fds[0], buf, 8) == 5);
    } else {
      CHECK(write(fds[0], &one, 8) == 8);
      if (i % 5 == 2) CHECK(pread(fds[0], buf, 8, 0) == 8 && lseek(fds[0], 0, SEEK_SET) == 0);
      CHECK(read(fds[0], buf, 8) == (i % 5 == 4 ? 0 : 8));
      if (i % 5 == 2) CHECK(read(fds[0], buf, 8) == 0);
    }
    // Closed by the C library, which the calls cannot see, or by the program.
    FILE *file = i % 2 ? fdopen(fds[0], "r+") : NULL;
    if (file) fclose(file);
    else close(fds[0]);
    if (fds[1] >= 0) close(fds[1]);
  }
  (void)none;
  return NULL;
}

// A read of a descriptor that another thread closes ends, or goes on waiting as in the kernel: only that nothing that
// belongs to the number's next owner is read.

static int closing[2];

static void *read_closed(void *arg) {
  (void)arg;
  char buf[8];
  ssize_t n = read(closing[0], buf, 8);
  CHECK(n == 0 || (n == -1 && errno == EBADF));
  return NULL;
}

static void test_closed(void) {
  CHECK(pipe(closing) == 0);
  pthread_t reader = start(read_closed, NULL);
  usleep(20000);
  int other[2];
  close(closing[0]);
  CHECK(pipe(other) == 0);
  CHECK(write(other[1], "12345678", 8) == 8);
  usleep(20000);
  // In the kernel the reader still waits for the old pipe.
  close(closing[1]);
  join(reader);
  char buf[8];
  CHECK(read(other[0], buf, 8) == 8);
  close(other[0]), close(other[1]);
}

// Cancellation.

static int cleaned;
static void clean(void *arg) { cleaned += (int)(intptr_t)arg; }

static void *read_for_ever(void *arg) {
  char byte;
  pthread_cleanup_push(clean, (void *)1);
  read((int)(intptr_t)arg, &byte, 1);
  pthread_cleanup_pop(0);
  return NULL;
}

static void test_cancel(void) {
  int fds[2];
  CHECK(pipe(fds) == 0);
  cleaned = 0;
  for (int i = 0; i < 10; i++) {
    pthread_t reader = start(read_for_ever, (void *)(intptr_t)fds[0]);
    if (i % 2) usleep(5000);
    CHECK(pthread_cancel(reader) == 0);
    CHECK(join(reader) == PTHREAD_CANCELED);
  }
  CHECK(cleaned >= 5 && cleaned <= 10);
  // The descriptor is as before.
  pthread_t reader = start(read_for_ever, (void *)(intptr_t)fds[0]);
  usleep(5000);
  CHECK(write(fds[1], "x", 1) == 1);
  CHECK(join(reader) == NULL);
  close(fds[0]), close(fds[1]);
}

// Many threads that wait, and some that compute.

enum { MANY = 200, COMPUTING = 4 };
static int many[MANY][2];
static volatile int computing;

static void *wait_and_answer(void *arg) {
  int nth = (int)(intptr_t)arg;
  int got;
  for (int i = 0; i < 5; i++) {
    CHECK(read(many[nth][0], &got, sizeof got) == sizeof got);
    CHECK(got == nth * 10 + i);
  }
  return NULL;
}

static void *compute(void *arg) {
  unsigned long x = (unsigned long)(uintptr_t)arg;
  while (computing) x = x * 6364136223846793005ul + 1;
  return (void *)(uintptr_t)(x | 1);
}

static int kernel_threads(void) {
  DIR *dir = opendir("/proc/self/task");
  int count = -2;
  while (readdir(dir)) count++;
  closedir(dir);
  return count;
}

static void test_many(void) {
  pthread_t waiting[MANY], computes[COMPUTING];
  computing = 1;
  for (int i = 0; i < MANY; i++) {
    CHECK(pipe(many[i]) == 0);
    waiting[i] = start(wait_and_answer, (void *)(intptr_t)i);
  }
  for (int i = 0; i < COMPUTING; i++) computes[i] = start(compute, (void *)(intptr_t)i);
  int most = 0;
  for (int round = 0; round < 5; round++) {
    usleep(5000);
    for (int i = 0; i < MANY; i++) {
      int number = i * 10 + round;
      CHECK(write(many[i][1], &number, sizeof number) == sizeof number);
    }
    int threads = kernel_threads();
    if (threads > most) most = threads;
  }
  for (int i = 0; i < MANY; i++) join(waiting[i]);
  computing = 0;
  for (int i = 0; i < COMPUTING; i++) join(computes[i]);
  const char *preload = getenv("LD_PRELOAD");
  long cpus = sysconf(_SC_NPROCESSORS_ONLN);
  if (preload && strstr(preload, "heddle") && most > cpus + 8) {
    fprintf(stderr, "files.c: %d kernel threads for %ld CPUs\n", most, cpus);
    exit(1);
  }
  for (int i = 0; i < MANY; i++) close(many[i][0]), close(many[i][1]);
}

// What the C library asks servers for, and children.

static void *names(void *arg) {
  (void)arg;
  struct addrinfo hints = {.ai_family = AF_INET, .ai_flags = AI_NUMERICHOST}, *result;
  CHECK(getaddrinfo("127.0.0.1", "80", &hints, &result) == 0);
  char host[64];
  CHECK(getnameinfo(result->ai_addr, result->ai_addrlen, host, sizeof host, NULL, 0,
                    NI_NUMERICHOST) == 0);
  CHECK(strcmp(host, "127.0.0.1") == 0);
  freeaddrinfo(result);
  struct passwd entry, *found;
  char buf[1024];
  CHECK(getpwuid_r(0, &entry, buf, sizeof buf, &found) == 0 && found && found->pw_uid == 0);
  CHECK(WEXITSTATUS(system("exit 7")) == 7);
  return NULL;
}

int main(int argc, char **argv) {
  int rounds = argc > 1 ? atoi(argv[1]) : 1;
  CHECK(close(mkstemp(lock_name)) == 0);
  for (int i = 0; i < rounds; i++) {
    join(start(files, NULL));
    join(start(hold_locks, NULL));
    join(start(reuse, NULL));
    test_closed();
    test_cancel();
    test_many();
    join(start(names, NULL));
  }
  unlink(lock_name);
  puts("files: ok");
  return 0;
}
