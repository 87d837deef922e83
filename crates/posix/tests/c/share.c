/* A program for tests of shared CPUs. Usage: share COUNTER batch THREADS, which computes until it is killed, or share
 * COUNTER service THREADS ROUNDS, whose threads each sleep for a millisecond, compute a little and take a lock, ROUNDS
 * times. Both count what they have done in the first eight bytes of the file COUNTER. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static _Atomic uint64_t *done;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long rounds, sum;

static uint64_t compute(uint64_t seed, int steps)
{
	for (int step = 0; step < steps; step++)
		seed = seed * 6364136223846793005u + 1;
	return seed;
}

static void *batch(void *arg)
{
	uint64_t seed = (uintptr_t)arg;
	for (;;) {
		seed = compute(seed, 1000);
		/* Where a preemption has to wait. */
		char *memory = malloc(64 + (seed >> 56));
		memset(memory, 1, 64);
		free(memory);
		atomic_fetch_add(done, 1);
	}
	return NULL;
}

static void *service(void *arg)
{
	uint64_t seed = (uintptr_t)arg;
	for (long round = 0; round < rounds; round++) {
		struct timespec millisecond = {0, 1000000};
		nanosleep(&millisecond, NULL);
		seed = compute(seed, 10000);
		pthread_mutex_lock(&lock);
		sum += (long)(seed | 1) & 1;
		pthread_mutex_unlock(&lock);
		atomic_fetch_add(done, 1);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	if (argc < 4)
		return 2;
	int file = open(argv[1], O_RDWR), is_batch = strcmp(argv[2], "batch") == 0, threads = atoi(argv[3]);
	void *memory = mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	pthread_t thread[64];
	if (file < 0 || memory == MAP_FAILED || threads < 1 || threads > 64 || (!is_batch && argc < 5))
		return 2;
	done = memory;
	rounds = is_batch ? 0 : atol(argv[4]);
	for (long number = 0; number < threads; number++)
		if (pthread_create(&thread[number], NULL, is_batch ? batch : service, (void *)number))
			return 1;
	for (int number = 0; number < threads; number++)
		pthread_join(thread[number], NULL);
	if (sum != threads * rounds) {
		printf("%ld rounds of %ld\n", sum, threads * rounds);
		return 1;
	}
	return 0;
}
