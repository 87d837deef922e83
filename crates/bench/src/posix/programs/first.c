/* A first thread that computes all the time, beside a thread that wakes up each millisecond and computes for some 20
 * us. How much later than it asked that thread runs is the wake-up latency.
 *
 * Usage: first MILLISECONDS [--nice]. Prints {"wakeup_p50_ns": 68000, ..., "steps_per_s": 5000.1}. With --nice the
 * first thread lowers its priority to nice 19 before it computes. */
#include "program.h"
#include <stdatomic.h>
#include <sys/resource.h>

#define PERIOD_NS 1000000
#define LOOPS 10000

static struct histogram wakeups;
static atomic_int stopping;
static uint64_t until;
static volatile uint64_t result;

static void *wake_up(void *arg)
{
	for (uint64_t at = now_ns() + PERIOD_NS; at < until; at += PERIOD_NS) {
		struct timespec t = { (time_t)(at / 1000000000), (long)(at % 1000000000) };
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
			;
		record(&wakeups, now_ns() - at);
		result = compute(LOOPS, at);
	}
	atomic_store(&stopping, 1);
	return arg;
}

int main(int argc, char **argv)
{
	int with_nice = argc == 3 && strcmp(argv[2], "--nice") == 0;
	if (argc != 2 && !with_nice) {
		fprintf(stderr, "usage: first MILLISECONDS [--nice]\n");
		return 2;
	}
	uint64_t begin = now_ns(), steps = 0, x = 1;
	until = begin + (uint64_t)number(argv[1], 2, "MILLISECONDS") * 1000000;
	pthread_t thread = start(wake_up, NULL);
	if (with_nice)
		sure(setpriority(PRIO_PROCESS, 0, 19), "setpriority");
	for (; !atomic_load_explicit(&stopping, memory_order_relaxed); steps++)
		x = compute(LOOPS, x);
	result = x;
	double seconds = (double)(now_ns() - begin) / 1e9;
	join(thread);
	printf("{\"wakeup_p50_ns\": %llu, \"wakeup_p99_ns\": %llu, \"wakeup_p999_ns\": %llu, \"steps_per_s\": %.3f}\n",
	       (unsigned long long)percentile(&wakeups, 50), (unsigned long long)percentile(&wakeups, 99),
	       (unsigned long long)percentile(&wakeups, 99.9), (double)steps / seconds);
	return 0;
}
