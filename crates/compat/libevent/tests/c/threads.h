/* Threads that share a base, and a callback that keeps one of them busy. */
#include "check.h"

#define THREADS 4

static struct event_base *base;
static pthread_t threads[THREADS];

static void begin(const char *policy)
{
	base = heddle_event_base_new(policy);
	CHECK(base);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, handle, base) == 0);
	until_in_loop(base, THREADS);
}

static void join(long said)
{
	for (int i = 0; i < THREADS; i++) {
		void *result;
		CHECK(pthread_join(threads[i], &result) == 0);
		CHECK((long)result == said);
	}
}

static void end(void)
{
	CHECK(event_base_loopbreak(base) == 0);
	join(0);
	event_base_free(base);
}

/* A callback that stays until it is released. */
static atomic_int inside, go, done;

static void stay(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	(void)arg;
	atomic_fetch_add(&inside, 1);
	until(&go, 1);
	usleep(50000);
	atomic_fetch_add(&done, 1);
}
