/* Several threads at one queue, queues that are closed, forks. */
#include "test.h"

enum { THREADS = 6, PAIRS = 16, ROUNDS = 400 };

static int kq, ends[PAIRS][2];
static int busy[PAIRS], served;

/* Answers a byte with a byte until it is asked to stop. No two threads may handle one connection. */
static void *serve(void *unused)
{
	struct kevent kev[4];
	char c;
	int n;

	while ((n = kevent(kq, NULL, 0, kev, 4, &HANG)) > 0)
		for (int i = 0; i < n; i++) {
			long at = (long)kev[i].udata;
			if (at < 0)
				return unused;
			CHECK(__sync_lock_test_and_set(&busy[at], 1) == 0);
			sched_yield();
			CHECK(read(ends[at][0], &c, 1) == 1 && write(ends[at][0], &c, 1) == 1);
			__sync_fetch_and_add(&served, 1);
			__sync_lock_release(&busy[at]);
		}
	CHECK(!"reported at all");
	return unused;
}

static void exchange(int flags, const char *policy)
{
	pthread_t threads[THREADS];

	kq = kqueue();
	served = 0;
	CHECK(kqueue_policy(kq, policy) == 0);
	for (long i = 0; i < PAIRS; i++) {
		CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends[i]) == 0);
		CHECK(change(kq, ends[i][0], EVFILT_READ, EV_ADD | flags, 0, 0, (void *)i) == 0);
	}
	/* Reported again each time it is released. */
	CHECK(change(kq, 1, EVFILT_USER, EV_ADD, 0, 0, (void *)-1) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, serve, NULL) == 0);
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < PAIRS; i++)
			put(ends[i][1], "x");
		if (round == ROUNDS / 2)
			CHECK(kqueue_policy(kq, "best-of-two") == 0);
		for (int i = 0; i < PAIRS; i++)
			take(ends[i][1], 1);
	}
	CHECK(change(kq, 1, EVFILT_USER, 0, NOTE_TRIGGER, 0, NULL) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK(served == PAIRS * ROUNDS);
	for (int i = 0; i < PAIRS; i++)
		close(ends[i][0]), close(ends[i][1]);
	CHECK(kqueue_close(kq) == 0);
}

static void once_at_a_time(void)
{
	exchange(0, "hybrid");
	exchange(0, "queue-affinity");
}

static void once_at_a_time_by_edges(void)
{
	exchange(EV_CLEAR, "hybrid:affinity=queue");
}

static void *wait_for_end(void *result)
{
	struct kevent kev;

	*(int *)result = kevent(kq, NULL, 0, &kev, 1, NULL) == -1 ? errno : 0;
	return NULL;
}

static void ends_for_all(int (*end)(int))
{
	pthread_t threads[THREADS];
	int results[THREADS] = {0};
	struct timespec little = {0, 20000000};

	kq = kqueue();
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, wait_for_end, &results[i]) == 0);
	/* Most are waiting by then; those that are not get the same. */
	nanosleep(&little, NULL);
	CHECK(end(kq) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0 && results[i] == EBADF);
	CHECK(fcntl(kq, F_GETFD) == -1 && change(kq, 1, EVFILT_USER, EV_ADD, 0, 0, NULL) == EBADF);
}

static void closed_by_a_call(void)
{
	ends_for_all(kqueue_close);
	CHECK(kqueue_close(kq) == -1 && errno == EBADF);
}

static void closed(void)
{
	ends_for_all(close);
}

/* A thread's membership in a closed queue is not mistaken for one in the next queue, which has the same
 * number. */
static void number_used_again(void)
{
	int a = kqueue(), b;

	CHECK(change(a, 1, EVFILT_USER, EV_ADD, NOTE_TRIGGER, 0, NULL) == 0 && only(a).ident == 1);
	CHECK(close(a) == 0);
	b = kqueue();
	CHECK(a == b && nothing(b));
	CHECK(change(b, 2, EVFILT_USER, EV_ADD, NOTE_TRIGGER, 0, NULL) == 0 && only(b).ident == 2);
	/* A file that has the number is not a queue. */
	CHECK(close(b) == 0 && dup2(0, b) == b);
	CHECK(change(b, 2, EVFILT_USER, EV_ADD, 0, 0, NULL) == EBADF);
}

static void descriptors_are_given_back(void)
{
	int first = kqueue();

	for (int i = 0; i < 300; i++) {
		int fd = kqueue();
		CHECK(fd >= 0 && fd < first + 100 && nothing(fd) && close(fd) == 0);
	}
}

static void forks(void)
{
	int status, fd[2];

	kq = kqueue();
	pair(fd);
	CHECK(add(kq, fd[0], EVFILT_READ, 0) == 0 && nothing(kq));
	pid_t child = fork();
	if (child == 0) {
		struct kevent kev;
		CHECK(kevent(kq, NULL, 0, &kev, 1, &NOW) == -1 && errno == EBADF);
		CHECK(add(kq, fd[1], EVFILT_READ, 0) == EBADF);
		/* It can make its own. */
		int mine = kqueue();
		CHECK(change(mine, 1, EVFILT_USER, EV_ADD, NOTE_TRIGGER, 0, NULL) == 0 && only(mine).ident == 1);
		exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	/* The parent's is unchanged. */
	put(fd[1], "a");
	CHECK(only(kq).data == 1);
}

static int delivered;

static void *wait_for_one(void *unused)
{
	CHECK(only(kq).filter == EVFILT_USER);
	__sync_fetch_and_add(&delivered, 1);
	return unused;
}

/* What a thread held when it ended is reported to others, if it was not handled. */
static void threads_end(void)
{
	pthread_t thread;

	kq = kqueue();
	CHECK(change(kq, 1, EVFILT_USER, EV_ADD, NOTE_TRIGGER, 0, NULL) == 0);
	for (int i = 0; i < 20; i++)
		CHECK(pthread_create(&thread, NULL, wait_for_one, NULL) == 0 && pthread_join(thread, NULL) == 0);
	CHECK(delivered == 20 && only(kq).ident == 1);
	CHECK(kqueue_leave(kq) == 0 && kqueue_leave(kq) == -1 && errno == ENOENT);
	CHECK(only(kq).ident == 1);
}

static pthread_t owner;

static void *wait_for_mine(void *unused)
{
	struct kevent kev;

	while (kevent(kq, NULL, 0, &kev, 1, &HANG) == 1 && kev.ident != 2)
		CHECK(kev.ident != 1 || pthread_equal(pthread_self(), owner));
	return unused;
}

/* SKQ's pinning. */
static void affinity(void)
{
	pthread_t other;

	kq = kqueue();
	owner = pthread_self();
	CHECK(pthread_create(&other, NULL, wait_for_mine, NULL) == 0);
	CHECK(change(kq, 1, EVFILT_USER, EV_ADD | EV_CLEAR | EV_AFFINITY, 0, 0, NULL) == 0);
	for (int i = 0; i < 200; i++) {
		CHECK(change(kq, 1, EVFILT_USER, 0, NOTE_TRIGGER, 0, NULL) == 0);
		CHECK(only(kq).ident == 1);
	}
	CHECK(kqueue_leave(kq) == 0);
	CHECK(change(kq, 2, EVFILT_USER, EV_ADD, NOTE_TRIGGER, 0, NULL) == 0 && pthread_join(other, NULL) == 0);
}

/* High priority first; parameters. */
static void realtime(void)
{
	struct kevent kev[8];

	kq = kqueue();
	CHECK(kqueue_share(kq, 0) == -1 && errno == EINVAL && kqueue_share(kq, 101) == -1);
	CHECK(kqueue_error()[0] != 0);
	CHECK(kqueue_share(kq, 50) == 0 && kqueue_tune(kq, KQTUNE_RTSHARE | 100 << 16) == 0);
	CHECK(kqueue_frequency(kq, 10000) == 0 && kqueue_tune(kq, KQTUNE_FREQ | 0 << 16) == 0);
	CHECK(kqueue_tune(kq, 3) == -1 && errno == EINVAL);
	CHECK(kqueue_multi(kq, KQ_SCHED_CPU | KQ_SCHED_ARGS(2) | KQ_SCHED_FEAT_WS | KQ_SCHED_FARGS(1)) == 0);
	CHECK(kqueue_multi(kq, KQ_SCHED_CPU | KQ_SCHED_ARGS(9)) == -1 && errno == EINVAL);
	CHECK(kqueue_policy(kq, "nonsense") == -1 && errno == EINVAL && strstr(kqueue_error(), "nonsense"));
	CHECK(kqueue_policy(kq, NULL) == -1 && errno == EFAULT && kqueue_policy(-1, "hybrid") == -1 && errno == EBADF);
	char text[4096];
	CHECK(nothing(kq));
	int length = kqueue_stats(kq, text, sizeof text);
	CHECK(length == (int)strlen(text) && strstr(text, "policy hybrid:affinity=cpu") && kqueue_stats(kq, NULL, 0) > 50);
	CHECK(kqueue_stats(kq, text, 8) > 50 && !strcmp(text, "policy ") && kqueue_stats(kq, NULL, 1) == -1);
	CHECK(change(kq, 1, EVFILT_USER, EV_ADD | EV_CLEAR, NOTE_TRIGGER, 0, NULL) == 0);
	CHECK(change(kq, 2, EVFILT_USER, EV_ADD | EV_CLEAR | EV_REALTIME, NOTE_TRIGGER, 0, NULL) == 0);
	CHECK(kevent(kq, NULL, 0, kev, 1, &HANG) == 1 && kev[0].ident == 2 && kev[0].flags & EV_REALTIME);
	CHECK(kevent(kq, NULL, 0, kev, 1, &HANG) == 1 && kev[0].ident == 1);
}

/* A connection to which nothing comes is reported, and what comes is reported as ever. */
static void idle(void)
{
	struct kevent kev;
	int ends[2];

	kq = kqueue();
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	CHECK(kqueue_idle(kq, ends[0], EVFILT_READ, 1) == -1 && errno == ENOENT);
	CHECK(kqueue_idle(-1, ends[0], EVFILT_READ, 1) == -1 && errno == EBADF);
	CHECK(change(kq, ends[0], EVFILT_READ, EV_ADD, 0, 0, (void *)7) == 0);
	CHECK(kqueue_idle(kq, ends[0], EVFILT_READ, 5) == 0);
	for (int i = 0; i < 3; i++) {
		CHECK(kevent(kq, NULL, 0, &kev, 1, &HANG) == 1);
		CHECK(kev.ident == (uintptr_t)ends[0] && kev.filter == EVFILT_READ && kev.udata == (void *)7);
		CHECK(kev.fflags == NOTE_IDLE && kev.data == 0 && !(kev.flags & EV_EOF));
	}
	put(ends[1], "x");
	do
		CHECK(kevent(kq, NULL, 0, &kev, 1, &HANG) == 1);
	while (kev.fflags == NOTE_IDLE);
	CHECK(kev.data == 1 && kev.fflags == 0);
	take(ends[0], 1);
	CHECK(kqueue_idle(kq, ends[0], EVFILT_READ, 0) == 0 && nothing(kq));
	close(ends[0]), close(ends[1]);
	CHECK(kqueue_close(kq) == 0);
}

static void on_signal(int signal)
{
	(void)signal;
}

static void *interrupt(void *whom)
{
	struct timespec little = {0, 10000000};

	/* Until it is noticed: the first events may come before the call. */
	while (!delivered && pthread_kill(*(pthread_t *)whom, SIGUSR2) == 0)
		nanosleep(&little, NULL);
	return NULL;
}

static void interrupted(void)
{
	struct sigaction action = {.sa_handler = on_signal};
	struct kevent kev;
	pthread_t self = pthread_self(), other;

	kq = kqueue();
	CHECK(sigaction(SIGUSR2, &action, NULL) == 0 && pthread_create(&other, NULL, interrupt, &self) == 0);
	CHECK(kevent(kq, NULL, 0, &kev, 1, NULL) == -1 && errno == EINTR);
	delivered = 1;
	CHECK(pthread_join(other, NULL) == 0);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{"once_at_a_time", once_at_a_time}, {"once_at_a_time_by_edges", once_at_a_time_by_edges},
		{"closed_by_a_call", closed_by_a_call}, {"closed", closed}, {"number_used_again", number_used_again},
		{"descriptors_are_given_back", descriptors_are_given_back}, {"forks", forks}, {"threads_end", threads_end},
		{"affinity", affinity}, {"realtime", realtime}, {"idle", idle}, {"interrupted", interrupted}, {NULL, NULL},
	};
	return run_test(tests, argc, argv);
}
