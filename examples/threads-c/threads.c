/* Short requests beside long scans: threads [POLICY]. Prints the longest time that a request took. */
#include <heddle/thread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SCANS = 4, LIMIT = 300000, REQUESTS = 200, EVERY_NS = 1000000 };

/* What the requests share. */
static struct {
	hd_mutex lock;
	hd_cond changed;
	int answered;
	uint64_t longest;
} state = {HD_MUTEX_INIT, HD_COND_INIT, 0, 0};

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, hd_error());
	exit(1);
}

/* Counts the primes below LIMIT. */
static void *scan(void *argument)
{
	long primes = 0;

	(void)argument;
	for (long n = 2; n < LIMIT; n++) {
		long d = 2;
		while (d * d <= n && n % d)
			d++;
		primes += d * d > n;
	}
	return (void *)primes;
}

/* Notes how long it took until it ran. */
static void *request(void *argument)
{
	uint64_t took = now() - (uint64_t)(uintptr_t)argument;

	hd_mutex_lock(&state.lock);
	state.answered++;
	if (took > state.longest)
		state.longest = took;
	hd_cond_signal(&state.changed);
	hd_mutex_unlock(&state.lock);
	return NULL;
}

/* Creates the requests, one each millisecond, and waits for their answers. */
static void *client(void *argument)
{
	uint64_t next = now();

	(void)argument;
	for (int i = 0; i < REQUESTS; i++, next += EVERY_NS) {
		hd_task *task;
		hd_task_sleep_until(next);
		task = hd_task_spawn(NULL, NULL, request, (void *)(uintptr_t)now());
		if (!task)
			die("request");
		hd_task_detach(task);
	}
	hd_mutex_lock(&state.lock);
	while (state.answered < REQUESTS)
		hd_cond_wait(&state.changed, &state.lock);
	hd_mutex_unlock(&state.lock);
	return NULL;
}

int main(int argc, char **argv)
{
	hd_runtime *runtime = hd_runtime_start(argc > 1 ? argv[1] : NULL, 0);
	struct hd_task_attr attr = {.name = "scan", .class_ = HD_BEST_EFFORT};
	hd_task *scans[SCANS], *requests;
	void *primes = NULL;

	if (!runtime)
		die("start");
	for (int i = 0; i < SCANS; i++)
		if (!(scans[i] = hd_task_spawn(runtime, &attr, scan, NULL)))
			die("scan");
	requests = hd_task_spawn(runtime, NULL, client, NULL);
	if (!requests || hd_task_join(requests, NULL) < 0)
		die("client");
	for (int i = 0; i < SCANS; i++)
		if (hd_task_join(scans[i], &primes) < 0)
			die("scan");
	printf("%d requests, the longest %llu us; %ld primes\n", state.answered,
	       (unsigned long long)state.longest / 1000, (long)primes);
	return hd_runtime_stop(runtime, 0);
}
