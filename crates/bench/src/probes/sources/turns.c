/* Two threads that compute on one CPU.
 *
 * Usage: turns work STEPS REPEATS: each thread computes STEPS steps. Prints {"cpu_ns": 1, "repeats": 1}, the least CPU
 * time of the process among the repeats.
 *        turns watch MILLISECONDS: each thread notes the time every hundred nanoseconds or so, and how long the other
 * has computed if that has run since. Prints {"ticks": 1, "ns": 1, "stolen": 1, "buckets": [[highest, count], ...],
 * "whole": [...]}, lengths of turns in ticks of the time stamp counter. Those in `whole` contain what was stolen: more
 * time between two notes in a turn, which only an interrupt, another process or the host can have caused.
 *
 * The bench confines the process to one CPU. */
#include "program.h"
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

/* Steps between two looks at the time stamp counter: some 100 ns. */
#define PIECE 40
/* A thread that has its CPU notes the time ten times in so many ticks. */
#define STOLEN (1 << 12)
/* So many turns in the beginning may have had the first thread among them. */
#define WARM_UP 32

static uint64_t ticks(void)
{
	return __builtin_ia32_rdtsc();
}

static uint64_t steps;
static volatile uint64_t sink;

static void *work(void *arg)
{
	sink = compute(steps, (uintptr_t)arg);
	return NULL;
}

static uint64_t cpu_ns_of_work(void)
{
	uint64_t begin = read_clock(CLOCK_PROCESS_CPUTIME_ID);
	pthread_t a = start(work, (void *)1), b = start(work, (void *)2);
	join(a);
	join(b);
	return read_clock(CLOCK_PROCESS_CPUTIME_ID) - begin;
}

/* A thread's own; the other reads the times, and only after it has seen that it is the owner no longer. */
struct watcher {
	atomic_ulong begin, last, stolen;
	uint64_t turns, stolen_in_all;
	struct histogram lengths, whole;
};

static struct watcher watchers[2];
static atomic_ulong owner = 2;
static atomic_int ready;
static uint64_t end;

#define RELAXED memory_order_relaxed

static void *watch(void *arg)
{
	uintptr_t me = (uintptr_t)arg;
	struct watcher *mine = &watchers[me], *other = &watchers[1 - me];
	uint64_t x = me;
	atomic_fetch_add(&ready, 1);
	while (atomic_load(&ready) < 2)
		sched_yield();
	for (;;) {
		x = compute(PIECE, x);
		uint64_t now = ticks();
		if (atomic_exchange_explicit(&owner, me, RELAXED) != me) {
			uint64_t from = atomic_load_explicit(&other->begin, RELAXED);
			uint64_t to = atomic_load_explicit(&other->last, RELAXED);
			uint64_t stolen = atomic_load_explicit(&other->stolen, RELAXED);
			if (++mine->turns > WARM_UP && from && to >= from + stolen) {
				record(&mine->lengths, to - from - stolen);
				record(&mine->whole, to - from);
			}
			atomic_store_explicit(&mine->begin, now, RELAXED);
			atomic_store_explicit(&mine->stolen, 0, RELAXED);
		} else {
			uint64_t since = now - atomic_load_explicit(&mine->last, RELAXED);
			if (since > STOLEN && mine->turns > 0) {
				mine->stolen_in_all += since;
				uint64_t before = atomic_load_explicit(&mine->stolen, RELAXED);
				atomic_store_explicit(&mine->stolen, before + since, RELAXED);
			}
		}
		atomic_store_explicit(&mine->last, now, RELAXED);
		if (now >= end)
			break;
	}
	sink = x;
	return NULL;
}

/* Ticks in the time that the clock says. */
static double ticks_per_ns(void)
{
	uint64_t ns = now_ns(), from = ticks();
	while (now_ns() - ns < 10000000)
		;
	return (double)(ticks() - from) / (double)(now_ns() - ns);
}

static void watch_for(long ms)
{
	uint64_t ns = now_ns(), begin = ticks();
	end = begin + (uint64_t)(ticks_per_ns() * (double)ms * 1e6);
	pthread_t a = start(watch, (void *)0), b = start(watch, (void *)1);
	join(a);
	join(b);
	uint64_t all = ticks() - begin;
	ns = now_ns() - ns;
	merge(&watchers[0].lengths, &watchers[1].lengths);
	merge(&watchers[0].whole, &watchers[1].whole);
	uint64_t stolen = watchers[0].stolen_in_all + watchers[1].stolen_in_all;
	printf("{\"ticks\": %lu, \"ns\": %lu, \"stolen\": %lu, \"buckets\": ", all, ns, stolen);
	print_buckets(&watchers[0].lengths);
	printf(", \"whole\": ");
	print_buckets(&watchers[0].whole);
	printf("}\n");
}

int main(int argc, char **argv)
{
	if (argc == 4 && strcmp(argv[1], "work") == 0) {
		steps = (uint64_t)number(argv[2], 1, "STEPS");
		long repeats = number(argv[3], 1, "REPEATS");
		uint64_t least = UINT64_MAX;
		for (long repeat = 0; repeat < repeats; repeat++) {
			uint64_t taken = cpu_ns_of_work();
			least = taken < least ? taken : least;
		}
		printf("{\"cpu_ns\": %lu, \"repeats\": %ld}\n", least, repeats);
	} else if (argc == 3 && strcmp(argv[1], "watch") == 0) {
		watch_for(number(argv[2], 20, "MILLISECONDS"));
	} else {
		fprintf(stderr, "usage: turns work STEPS REPEATS | turns watch MILLISECONDS\n");
		return 2;
	}
	return 0;
}
