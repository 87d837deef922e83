/*
 * Linked into a program with -Wl,--wrap=main: if HEDDLE_TEST_IN_THREAD is set, its main function runs in a second
 * thread, beside one that computes, with probes. So it is preempted all the time although it may create no thread.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int __real_main(int argc, char **argv, char **environment);
int __wrap_main(int argc, char **argv, char **environment);

/* As much as a first thread usually has. */
#define STACK_SIZE ((size_t)8 << 20)

struct call {
	int argc, status;
	char **argv, **environment;
};

static volatile uint64_t steps;

static void *compute(void *unused)
{
	(void)unused;
	for (uint64_t from = 1;; from++) {
		for (uint64_t n = from; n > 1; steps++)
			n = n % 2 == 0 ? n / 2 : 3 * n + 1;
	}
	return NULL;
}

static void *run_main(void *argument)
{
	struct call *call = argument;

	call->status = __real_main(call->argc, call->argv, call->environment);
	return NULL;
}

static void fail(void)
{
	fputs("in_thread: no thread\n", stderr);
	exit(99);
}

int __wrap_main(int argc, char **argv, char **environment)
{
	struct call call = {argc, 0, argv, environment};
	pthread_attr_t large;
	pthread_t main_thread, other;

	if (getenv("HEDDLE_TEST_IN_THREAD") == NULL)
		return __real_main(argc, argv, environment);
	pthread_attr_init(&large);
	pthread_attr_setstacksize(&large, STACK_SIZE);
	if (pthread_create(&other, NULL, compute, NULL) != 0 ||
	    pthread_create(&main_thread, &large, run_main, &call) != 0)
		fail();
	pthread_join(main_thread, NULL);
	return call.status;
}
