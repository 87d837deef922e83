/*
 * What each timing kernel offers to the harness, and the tools that they share.
 *
 * A kernel is a translation unit of its own, so that it can be built with probes while the harness is built without.
 */
#ifndef HEDDLE_KERNEL_H
#define HEDDLE_KERNEL_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * A factor of the kernels' sizes, always one. It is volatile so that no compiler, not even at link time, can fold a
 * trip count: a real program does not know its sizes either.
 */
extern volatile size_t kernel_scale;

/* Makes the inputs at the first call, and does nothing later. Its time is not measured. */
void prepare(void);

/* Runs the kernel once and returns a checksum of all its results, the same at each call. */
uint64_t kernel(void);

/* Returns the next number of a sequence; the seed is the state before the first. */
static inline uint64_t next_random(uint64_t *state)
{
	uint64_t word = *state += 0x9e3779b97f4a7c15;

	word = (word ^ (word >> 32)) * 0xd6e8feb86659fd93;
	word = (word ^ (word >> 32)) * 0xd6e8feb86659fd93;
	return word ^ (word >> 32);
}

/* Returns the next number of a sequence as one from 0 to below 1. */
static inline double next_fraction(uint64_t *state)
{
	return (double)(next_random(state) >> 11) / 9007199254740992.0;
}

static inline uint64_t mix(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15;
	return hash ^ (hash >> 29);
}

/*
 * Returns a checksum of the bit patterns, so that a result that only looks the same is not. Its steps do not wait for
 * each other: it should take little of the measured time.
 */
static inline uint64_t checksum(const double *values, size_t count)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < count; i++) {
		uint64_t bits;

		memcpy(&bits, &values[i], sizeof(bits));
		sum += bits * (2 * i + 1);
	}
	return sum;
}

/* Allocates an input or a result. A kernel without its memory has nothing to measure, so a failure ends the program. */
static inline void *allocate(size_t count, size_t size)
{
	void *memory = calloc(count, size);

	if (memory == NULL) {
		fprintf(stderr, "no memory for %zu items of %zu bytes\n", count, size);
		exit(1);
	}
	return memory;
}

#endif
