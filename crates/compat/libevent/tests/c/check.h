/* What the tests share. A test that hangs is killed by its alarm. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <heddle/libevent/event.h>

#define CHECK(what) \
	do { \
		if (!(what)) { \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, errno); \
			_exit(1); \
		} \
	} while (0)

#define MS(n) (&(struct timeval){ (n) / 1000, (n) % 1000 * 1000 })

static inline long now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000L + now.tv_nsec / 1000;
}

static inline void pair(int fds[2])
{
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
	for (int i = 0; i < 2; i++)
		CHECK(fcntl(fds[i], F_SETFL, O_NONBLOCK) == 0);
}

static inline void send_one(int fd)
{
	CHECK(write(fd, "x", 1) == 1);
}

static inline int get_one(int fd)
{
	char byte;
	return (int)read(fd, &byte, 1);
}

/* A thread that handles events until the loop ends. Returns the loop's result. */
static inline void *handle(void *base)
{
	return (void *)(long)event_base_loop(base, EVLOOP_NO_EXIT_ON_EMPTY);
}

static inline void until(atomic_int *flag, int value)
{
	while (atomic_load(flag) < value)
		usleep(200);
}

/* Waits until `n` threads are in the loop. */
static inline void until_in_loop(struct event_base *base, int n)
{
	struct heddle_event_thread threads[64];
	for (int in = 0; in < n;) {
		in = 0;
		int all = heddle_event_base_threads(base, threads, 64);
		for (int i = 0; i < all; i++)
			in += threads[i].in_loop;
		usleep(200);
	}
}

struct test {
	const char *name;
	void (*run)(void);
};

static inline int run_test(const struct test *tests, const char *name)
{
	alarm(600);
	signal(SIGPIPE, SIG_IGN);
	for (; tests->name; tests++) {
		if (strcmp(tests->name, name) == 0) {
			tests->run();
			puts("fine");
			return 0;
		}
	}
	fprintf(stderr, "no test %s\n", name);
	return 2;
}
