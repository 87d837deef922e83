/* What the programs of `heddle bench posix` and `probes` share: errors, threads, clocks, arithmetic, percentiles. */
#ifndef PROGRAM_H
#define PROGRAM_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define UNUSED __attribute__((unused))

UNUSED static void fail(const char *what, int error)
{
	fprintf(stderr, "%s: %s\n", what, strerror(error));
	exit(1);
}

/* For functions that return an error number. */
UNUSED static void check(int error, const char *what)
{
	if (error)
		fail(what, error);
}

/* For functions that return -1 and set errno. */
UNUSED static long sure(long result, const char *what)
{
	if (result < 0)
		fail(what, errno);
	return result;
}

UNUSED static pthread_t start(void *(*body)(void *), void *arg)
{
	pthread_t thread;
	check(pthread_create(&thread, NULL, body, arg), "pthread_create");
	return thread;
}

UNUSED static void join(pthread_t thread)
{
	check(pthread_join(thread, NULL), "pthread_join");
}

/* A whole number of at least `least`. */
UNUSED static long number(const char *text, long least, const char *what)
{
	char *end;
	errno = 0;
	long value = strtol(text, &end, 10);
	if (errno || end == text || *end || value < least) {
		fprintf(stderr, "%s: `%s` is not a whole number from %ld\n", what, text, least);
		exit(2);
	}
	return value;
}

UNUSED static uint64_t read_clock(clockid_t clock)
{
	struct timespec t;
	sure(clock_gettime(clock, &t), "clock_gettime");
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

UNUSED static uint64_t now_ns(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

UNUSED static void sleep_ms(long ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000 };
	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &t) == EINTR)
		;
}

/* `loops` dependent steps, a nanosecond or two each: work of the same length on every system. */
UNUSED static uint64_t compute(uint64_t loops, uint64_t seed)
{
	uint64_t x = seed | 1;
	while (loops-- > 0) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
	}
	return x;
}

/* A histogram with 64 buckets for each power of two: percentiles are at most 1.6 % too high. */
#define FINE 6
#define BUCKETS ((64 - FINE + 1) << FINE)

struct histogram {
	uint64_t count;
	uint64_t of[BUCKETS];
};

UNUSED static unsigned bucket(uint64_t value)
{
	if (value < 1 << FINE)
		return (unsigned)value;
	unsigned shift = 63 - FINE - (unsigned)__builtin_clzll(value);
	return (shift << FINE) + (unsigned)(value >> shift);
}

UNUSED static uint64_t highest(unsigned bucket)
{
	if (bucket < 2u << FINE)
		return bucket;
	unsigned shift = (bucket >> FINE) - 1;
	return ((((uint64_t)bucket & ((1 << FINE) - 1)) + (1 << FINE) + 1) << shift) - 1;
}

UNUSED static void record(struct histogram *h, uint64_t value)
{
	h->of[bucket(value)]++;
	h->count++;
}

UNUSED static void merge(struct histogram *into, const struct histogram *from)
{
	into->count += from->count;
	for (unsigned i = 0; i < BUCKETS; i++)
		into->of[i] += from->of[i];
}

UNUSED static uint64_t percentile(const struct histogram *h, double percent)
{
	double wanted = (double)h->count * percent / 100;
	uint64_t sum = 0;
	for (unsigned i = 0; i < BUCKETS; i++) {
		sum += h->of[i];
		if (sum > 0 && (double)sum >= wanted)
			return highest(i);
	}
	return 0;
}

/* The buckets that are not empty, as JSON: [[highest, count], ...]. */
UNUSED static void print_buckets(const struct histogram *h)
{
	const char *before = "[";
	for (unsigned i = 0; i < BUCKETS; i++) {
		if (h->of[i] == 0)
			continue;
		printf("%s[%lu, %lu]", before, highest(i), h->of[i]);
		before = ", ";
	}
	printf("%s]", *before == '[' ? "[" : "");
}

#endif
