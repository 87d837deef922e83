/*
 * Times a kernel: NAME [ROUNDS]. Prints a line per round, the nanoseconds of CPU time and the checksum.
 *
 * This file is built without probes: the clock and the output should cost the same in every comparison.
 */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <inttypes.h>
#include <time.h>

#include "kernel.h"

#define DEFAULT_ROUNDS 5
#define MAX_ROUNDS 1000000

volatile size_t kernel_scale = 1;

/* The thread's CPU time leaves out what other programs take on a shared machine. */
static uint64_t cpu_nanoseconds(void)
{
	struct timespec now;

	if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) != 0) {
		perror("clock_gettime");
		exit(1);
	}
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Returns the number of rounds, or zero if the text is none. */
static unsigned long parse_rounds(const char *text)
{
	char *end;
	unsigned long rounds;

	/* strtoul would take a sign or a space. */
	if (*text < '0' || *text > '9')
		return 0;
	errno = 0;
	rounds = strtoul(text, &end, 10);
	return errno != 0 || *end != '\0' || rounds > MAX_ROUNDS ? 0 : rounds;
}

int main(int argc, char **argv)
{
	unsigned long rounds = DEFAULT_ROUNDS;
	uint64_t expected;

	if (argc > 2) {
		fprintf(stderr, "usage: %s [ROUNDS]\n", argv[0]);
		return 2;
	}
	if (argc == 2) {
		rounds = parse_rounds(argv[1]);
		if (rounds == 0) {
			fprintf(stderr, "%s: ROUNDS is a number from 1 to %d, not \"%s\"\n", argv[0], MAX_ROUNDS,
				argv[1]);
			return 2;
		}
	}

	prepare();
	expected = kernel();
	for (unsigned long round = 0; round < rounds; round++) {
		uint64_t start = cpu_nanoseconds();
		uint64_t result = kernel();
		uint64_t taken = cpu_nanoseconds() - start;

		printf("%" PRIu64 " %016" PRIx64 "\n", taken, result);
		if (result != expected) {
			fflush(stdout);
			fprintf(stderr, "%s: the checksum was %016" PRIx64 " in the warm-up\n", argv[0], expected);
			return 1;
		}
	}
	return 0;
}
