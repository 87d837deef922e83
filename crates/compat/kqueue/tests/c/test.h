/* What the C tests share. Each file is a list of cases, and the program runs the one that it is given by
 * name. No test depends on how long anything takes. */
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/event.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) do { \
	if (!(what)) { \
		fprintf(stderr, "%s:%d: not so: %s (errno %d)\n", __FILE__, __LINE__, #what, errno); \
		_exit(1); \
	} \
} while (0)

static const struct timespec NOW = {0, 0}, HANG = {30, 0};

struct test {
	const char *name;
	void (*run)(void);
};

/* Makes one change. Returns 0 or the errno. */
static inline int change(int kq, uintptr_t ident, int filter, int flags, unsigned fflags, int64_t data, void *udata)
{
	struct kevent kev;

	EV_SET(&kev, ident, filter, flags, fflags, data, udata);
	return kevent(kq, &kev, 1, NULL, 0, NULL) == 0 ? 0 : errno;
}

static inline int add(int kq, int fd, int filter, int flags)
{
	return change(kq, fd, filter, EV_ADD | flags, 0, 0, NULL);
}

/* Waits for one event, the only one. */
static inline struct kevent only(int kq)
{
	struct kevent kev[8];
	int n = kevent(kq, NULL, 0, kev, 8, &HANG);

	CHECK(n == 1);
	return kev[0];
}

/* Nothing is reported now. */
static inline int nothing(int kq)
{
	struct kevent kev[8];

	return kevent(kq, NULL, 0, kev, 8, &NOW) == 0;
}

static inline void pair(int fd[2])
{
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd) == 0);
}

static inline void put(int fd, const char *text)
{
	CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
}

static inline void take(int fd, size_t n)
{
	char buffer[4096];

	CHECK(read(fd, buffer, n) == (ssize_t)n);
}

static inline int run_test(const struct test *tests, int argc, char **argv)
{
	for (; tests->name; tests++)
		if (argc < 2)
			puts(tests->name);
		else if (!strcmp(tests->name, argv[1]))
			return tests->run(), 0;
	return argc < 2 ? 0 : 2;
}
