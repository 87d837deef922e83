/* EV_CLEAR: each edge is reported once, to one of the waiting threads, although its data stays unread. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <semaphore.h>
#include "test.h"

enum { MOST = 8, QUEUES = 12, EDGES = 12 };
enum { STOP = 1 << 20 };

static const int WAITERS[] = {2, 4, 8, 0};

static int kq, delivered[64];
static sem_t came;

static void came_is(int count)
{
	struct timespec end;

	CHECK(clock_gettime(CLOCK_REALTIME, &end) == 0);
	end.tv_sec += HANG.tv_sec;
	for (; count > 0; count--)
		CHECK(sem_timedwait(&came, &end) == 0);
}

/* Counts its events and reads nothing. Passes the order to stop on to the next thread. */
static void *count(void *unused)
{
	struct kevent kev[4];
	int n;

	while ((n = kevent(kq, NULL, 0, kev, 4, &HANG)) > 0) {
		int stops = 0;

		for (int i = 0; i < n; i++)
			if (kev[i].ident == STOP)
				stops = 1;
			else
				__sync_fetch_and_add(&delivered[(long)kev[i].udata], 1), sem_post(&came);
		if (stops) {
			CHECK(change(kq, STOP, EVFILT_USER, 0, NOTE_TRIGGER, 0, NULL) == 0);
			return unused;
		}
	}
	CHECK(!"asked to stop");
	return unused;
}

static void begin(pthread_t *threads, int waiters)
{
	memset(delivered, 0, sizeof delivered);
	CHECK(sem_init(&came, 0, 0) == 0);
	CHECK(change(kq, STOP, EVFILT_USER, EV_ADD | EV_CLEAR, 0, 0, NULL) == 0);
	for (int i = 0; i < waiters; i++)
		CHECK(pthread_create(&threads[i], NULL, count, NULL) == 0);
}

/* All have returned once more: whatever was still to be reported has been counted. */
static void end(pthread_t *threads, int waiters)
{
	CHECK(change(kq, STOP, EVFILT_USER, 0, NOTE_TRIGGER, 0, NULL) == 0);
	for (int i = 0; i < waiters; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK(sem_destroy(&came) == 0);
	CHECK(close(kq) == 0);
}

typedef void (*make)(int fd[2]);

static void make_pipe(int fd[2])
{
	CHECK(pipe(fd) == 0);
}

static void make_tcp(int fd[2])
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof at;
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	CHECK(bind(listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(listener, 1) == 0);
	CHECK(getsockname(listener, (struct sockaddr *)&at, &length) == 0);
	fd[1] = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(setsockopt(fd[1], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
	CHECK(connect(fd[1], (struct sockaddr *)&at, sizeof at) == 0 && (fd[0] = accept(listener, NULL, NULL)) >= 0);
	close(listener);
}

static void close_both(int fd[2])
{
	close(fd[0]), close(fd[1]);
}

/* One descriptor to read from: edge after edge, each as soon as the last was reported. */
static void one_by_one(make make, int waiters, int early)
{
	pthread_t threads[MOST];
	int fd[2];

	make(fd);
	kq = kqueue();
	if (early)
		CHECK(add(kq, fd[0], EVFILT_READ, EV_CLEAR) == 0);
	begin(threads, waiters);
	if (!early)
		CHECK(add(kq, fd[0], EVFILT_READ, EV_CLEAR) == 0);
	for (int i = 0; i < EDGES; i++) {
		put(fd[1], "x");
		came_is(1);
	}
	end(threads, waiters);
	if (delivered[0] != EDGES)
		fprintf(stderr, "%d waiters: %d edges, reported %d times\n", waiters, EDGES, delivered[0]);
	CHECK(delivered[0] == EDGES);
	close_both(fd);
}

static void many_times(void (*one)(make make, int waiters, int flag), make make)
{
	for (const int *waiters = WAITERS; *waiters; waiters++)
		for (int i = 0; i < QUEUES; i++)
			one(make, *waiters, i % 2);
}

static void pipes(void)
{
	many_times(one_by_one, make_pipe);
}

static void socketpairs(void)
{
	many_times(one_by_one, pair);
}

static void tcp(void)
{
	many_times(one_by_one, make_tcp);
}

/* Many descriptors at once: more edges than threads, so that events are queued and stolen. */
static void at_once(make make, int waiters, int early)
{
	enum { PAIRS = 24 };
	pthread_t threads[MOST];
	int fd[PAIRS][2];

	kq = kqueue();
	if (!early)
		begin(threads, waiters);
	for (long i = 0; i < PAIRS; i++) {
		make(fd[i]);
		CHECK(change(kq, fd[i][0], EVFILT_READ, EV_ADD | EV_CLEAR, 0, 0, (void *)i) == 0);
	}
	if (early)
		begin(threads, waiters);
	for (int round = 0; round < EDGES; round++) {
		for (int i = 0; i < PAIRS; i++)
			put(fd[i][1], "x");
		came_is(PAIRS);
	}
	end(threads, waiters);
	for (int i = 0; i < PAIRS; i++) {
		if (delivered[i] != EDGES)
			fprintf(stderr, "%d waiters: %d edges of pair %d reported %d times\n", waiters, EDGES, i, delivered[i]);
		CHECK(delivered[i] == EDGES);
		close_both(fd[i]);
	}
}

static void many_pipes(void)
{
	many_times(at_once, make_pipe);
}

static void many_socketpairs(void)
{
	many_times(at_once, pair);
}

static void many_tcp(void)
{
	many_times(at_once, make_tcp);
}

/* A descriptor that is writable at once is reported once when it is added, and once more each time it is
 * added again. */
static void write_side(make make, int waiters, int early)
{
	pthread_t threads[MOST];
	int fd[2];

	(void)early;
	make(fd);
	kq = kqueue();
	begin(threads, waiters);
	for (int i = 0; i < EDGES; i++) {
		CHECK(add(kq, fd[1], EVFILT_WRITE, EV_CLEAR) == 0);
		came_is(1);
	}
	end(threads, waiters);
	CHECK(delivered[0] == EDGES);
	close_both(fd);
}

static void writing(void)
{
	many_times(write_side, make_pipe);
	many_times(write_side, pair);
	many_times(write_side, make_tcp);
}

/* User events, timers. */
static void counted(make make, int waiters, int is_timer)
{
	pthread_t threads[MOST];

	(void)make;
	kq = kqueue();
	begin(threads, waiters);
	if (!is_timer)
		CHECK(change(kq, 1, EVFILT_USER, EV_ADD | EV_CLEAR, 0, 0, NULL) == 0);
	for (int i = 0; i < EDGES; i++) {
		if (is_timer)
			CHECK(change(kq, 1, EVFILT_TIMER, EV_ADD | EV_ONESHOT, NOTE_USECONDS, 50, NULL) == 0);
		else
			CHECK(change(kq, 1, EVFILT_USER, 0, NOTE_TRIGGER, 0, NULL) == 0);
		came_is(1);
	}
	end(threads, waiters);
	CHECK(delivered[0] == EDGES);
}

static void users_and_timers(void)
{
	many_times(counted, NULL);
}

static int edge[2];
static sem_t handles, goes_on;

/* Handles one edge until it is asked to go on, then counts with the others. */
static void *handle(void *unused)
{
	struct kevent kev = only(kq);

	CHECK(kev.ident == (uintptr_t)edge[0] && sem_post(&handles) == 0);
	CHECK(sem_wait(&goes_on) == 0);
	return count(unused);
}

/* Activity while an edge is handled is reported afterwards, once, however much it is. */
static void while_handled(make make, int waiters, int early)
{
	pthread_t threads[MOST];

	make(edge);
	kq = kqueue();
	CHECK(add(kq, edge[0], EVFILT_READ, EV_CLEAR) == 0);
	CHECK(sem_init(&handles, 0, 0) == 0 && sem_init(&goes_on, 0, 0) == 0);
	CHECK(pthread_create(&threads[0], NULL, handle, NULL) == 0);
	put(edge[1], "x");
	CHECK(sem_wait(&handles) == 0);
	begin(threads + 1, waiters - 1);
	for (int i = 0; i <= early; i++)
		put(edge[1], "y");
	CHECK(sem_post(&goes_on) == 0);
	came_is(1);
	end(threads, waiters);
	/* If a thread gets two at once and continues between them, each may be reported. */
	CHECK(delivered[0] >= 1 && delivered[0] <= 1 + early);
	close_both(edge);
}

static void edges_while_handled(void)
{
	many_times(while_handled, make_pipe);
	many_times(while_handled, pair);
	many_times(while_handled, make_tcp);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{"pipes", pipes}, {"socketpairs", socketpairs}, {"tcp", tcp}, {"many_pipes", many_pipes},
		{"many_socketpairs", many_socketpairs}, {"many_tcp", many_tcp}, {"writing", writing},
		{"users_and_timers", users_and_timers}, {"edges_while_handled", edges_while_handled}, {NULL, NULL},
	};
	return run_test(tests, argc, argv);
}
