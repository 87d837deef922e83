/* Threads that compute forever in plain code, as a batch program does: steps of some 10 us, and now and then an
 * allocation.
 *
 * Usage: batch THREADS. Prints {"steps": 1234, "ns": 5678}, the steps so far and the clock, for each line that it
 * reads, and ends when its standard input does. */
#include "program.h"
#include <stdatomic.h>
#include <unistd.h>

#define LOOPS 5000
#define STEPS_PER_ALLOCATION 16
#define MOST_THREADS 256

struct counter {
	_Alignas(128) atomic_ulong steps;
};

static struct counter counters[MOST_THREADS];

/* Returns a new seed, from memory that was allocated for it. */
static uint64_t through_memory(uint64_t seed)
{
	size_t size = 64 + seed % 4032;
	unsigned char *memory = malloc(size);
	if (!memory)
		fail("malloc", ENOMEM);
	memset(memory, (int)seed, size);
	uint64_t sum = seed + memory[size / 2];
	free(memory);
	return sum;
}

static void *work(void *arg)
{
	struct counter *counter = arg;
	uint64_t seed = (uint64_t)(counter - counters) + 1;
	for (unsigned long step = 0;; step++) {
		seed = compute(LOOPS, seed);
		if (step % STEPS_PER_ALLOCATION == 0)
			seed = through_memory(seed);
		atomic_store_explicit(&counter->steps, step + 1, memory_order_relaxed);
	}
	return NULL;
}

static void report(long threads)
{
	unsigned long steps = 0;
	for (long i = 0; i < threads; i++)
		steps += atomic_load_explicit(&counters[i].steps, memory_order_relaxed);
	printf("{\"steps\": %lu, \"ns\": %llu}\n", steps, (unsigned long long)now_ns());
	fflush(stdout);
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: batch THREADS\n");
		return 2;
	}
	long threads = number(argv[1], 1, "THREADS");
	if (threads > MOST_THREADS) {
		fprintf(stderr, "THREADS: at most %d\n", MOST_THREADS);
		return 2;
	}
	for (long i = 0; i < threads; i++)
		start(work, &counters[i]);
	char byte;
	while (read(0, &byte, 1) > 0)
		report(threads);
	_exit(0);
}
