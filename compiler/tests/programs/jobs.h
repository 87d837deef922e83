/*
 * Runs jobs in threads and compares their results with those of the first thread, before there were others. A job
 * computes a hash from a seed, and always the same.
 */
#ifndef HEDDLE_JOBS_H
#define HEDDLE_JOBS_H

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>

#include "hash.h"

#define THREADS 8
#define SEEDS 4
#define MOST_JOBS 32

struct job {
	const char *name;
	uint64_t (*run)(uint64_t seed);
};

struct jobs {
	const struct job *jobs;
	size_t count;
	unsigned rounds;
	uint64_t expected[MOST_JOBS][SEEDS];
};

struct thread {
	struct jobs *jobs;
	pthread_t id;
	unsigned number, wrong;
};

static void *run_in_thread(void *argument)
{
	struct thread *thread = (struct thread *)argument;
	const struct jobs *jobs = thread->jobs;

	/* No two threads do the same at the same time. */
	for (size_t i = 0; i < jobs->count * jobs->rounds; i++) {
		size_t number = (i + thread->number * 5) % jobs->count;
		size_t seed = (i / jobs->count + thread->number) % SEEDS;
		uint64_t got = jobs->jobs[number].run(seed);

		if (got != jobs->expected[number][seed]) {
			fprintf(stderr, "thread %u: %s(%zu) is %016" PRIx64 " instead of %016" PRIx64 "\n",
				thread->number, jobs->jobs[number].name, seed, got, jobs->expected[number][seed]);
			thread->wrong++;
		}
	}
	return NULL;
}

/* Prints a hash for each job. Returns the exit status. */
static int run_jobs(const struct job *list, size_t count, unsigned rounds)
{
	static struct jobs jobs;
	struct thread threads[THREADS];
	unsigned wrong = 0;

	jobs.jobs = list;
	jobs.count = count;
	jobs.rounds = rounds;
	for (size_t i = 0; i < count; i++) {
		uint64_t hash = 0;

		for (size_t seed = 0; seed < SEEDS; seed++) {
			jobs.expected[i][seed] = list[i].run(seed);
			hash = mix(hash, jobs.expected[i][seed]);
		}
		print_hash(list[i].name, hash);
	}
	fflush(stdout);
	for (unsigned i = 0; i < THREADS; i++) {
		threads[i].jobs = &jobs;
		threads[i].number = i;
		threads[i].wrong = 0;
		if (pthread_create(&threads[i].id, NULL, run_in_thread, &threads[i]) != 0) {
			fputs("no thread\n", stderr);
			exit(1);
		}
	}
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(threads[i].id, NULL);
		wrong += threads[i].wrong;
	}
	return wrong != 0;
}

#endif
