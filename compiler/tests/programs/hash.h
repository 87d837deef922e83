/* The hash that the test programs print: their output must be the same with and without probes. */
#ifndef HEDDLE_HASH_H
#define HEDDLE_HASH_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static inline uint64_t mix(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15;
	return hash ^ (hash >> 29);
}

/* Mixes a number's bit pattern, so that a rounding that differs shows. */
static inline uint64_t mix_double(uint64_t hash, double value)
{
	uint64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return mix(hash, bits);
}

static inline uint64_t next_random(uint64_t *state)
{
	return mix(*state += 0x9e3779b97f4a7c15, 0x5851f42d4c957f2d);
}

static inline void print_hash(const char *name, uint64_t hash)
{
	printf("%s %016" PRIx64 "\n", name, hash);
}

#endif
