/* Threads that take jobs from a queue under a mutex, compute for some 20 us, and put the result back as the next job.
 *
 * Usage: compute THREADS MILLISECONDS. Prints {"jobs_per_s": 95000.1, "jobs": 190000}. */
#include "program.h"
#include <stdatomic.h>

#define LOOPS 10000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* A ring of `size` jobs, two for each thread: it is never empty, because a thread holds one at most. */
static uint64_t *jobs;
static size_t size, first, waiting;
static uint64_t done;
static atomic_int stopping;

static uint64_t take(void)
{
	pthread_mutex_lock(&lock);
	uint64_t job = jobs[first];
	first = (first + 1) % size;
	waiting--;
	pthread_mutex_unlock(&lock);
	return job;
}

static void *work(void *arg)
{
	while (!atomic_load_explicit(&stopping, memory_order_relaxed)) {
		uint64_t result = compute(LOOPS, take());
		pthread_mutex_lock(&lock);
		jobs[(first + waiting++) % size] = result;
		done++;
		pthread_mutex_unlock(&lock);
	}
	return arg;
}

static uint64_t jobs_done(void)
{
	pthread_mutex_lock(&lock);
	uint64_t count = done;
	pthread_mutex_unlock(&lock);
	return count;
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: compute THREADS MILLISECONDS\n");
		return 2;
	}
	long count = number(argv[1], 1, "THREADS"), ms = number(argv[2], 1, "MILLISECONDS");
	size = waiting = (size_t)count * 2;
	jobs = calloc(size, sizeof *jobs);
	pthread_t *threads = calloc((size_t)count, sizeof *threads);
	if (!jobs || !threads)
		fail("calloc", ENOMEM);
	for (long i = 0; i < count; i++)
		threads[i] = start(work, NULL);
	sleep_ms(ms / 10 + 1);
	uint64_t begin = now_ns(), before = jobs_done();
	sleep_ms(ms);
	uint64_t finished = jobs_done() - before;
	double seconds = (double)(now_ns() - begin) / 1e9;
	atomic_store(&stopping, 1);
	for (long i = 0; i < count; i++)
		join(threads[i]);
	printf("{\"jobs_per_s\": %.3f, \"jobs\": %llu}\n", (double)finished / seconds, (unsigned long long)finished);
	free(jobs);
	free(threads);
	return 0;
}
