/* The pattern of Chris Mason's schbench, written anew: a message thread wakes workers by futexes; a worker sleeps for
 * 100 us, as if it waited for the network, multiplies matrices, and waits for the next message. How long a worker waits
 * between its wake-up and its next instruction is the wake-up latency.
 *
 * Usage: schbench WORKERS MILLISECONDS OPERATIONS. OPERATIONS multiplications of 104 x 104 matrices are a request
 * (256 KiB for three of them, schbench's default). Not here: schbench's lock per CPU around the multiplications. */
#include "program.h"
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SIDE 104
#define SLEEP_US 100

enum { RUNNING, BLOCKED };

struct worker {
	_Atomic uint32_t futex;
	struct worker *next;
	uint64_t woken_at;
	uint64_t requests;
	struct histogram wakeups, services;
	unsigned long a[SIDE][SIDE], b[SIDE][SIDE], product[SIDE][SIDE];
	pthread_t thread;
};

/* Workers that wait for a message, and the futex of the thread that sends it. */
static _Atomic(struct worker *) waiting;
static _Atomic uint32_t messenger = RUNNING;
static atomic_int stopping, counting;
static long operations;

static void await(_Atomic uint32_t *futex)
{
	while (atomic_load(futex) == BLOCKED)
		syscall(SYS_futex, futex, FUTEX_WAIT_PRIVATE, BLOCKED, NULL, NULL, 0);
}

static void wake(_Atomic uint32_t *futex)
{
	if (atomic_exchange(futex, RUNNING) == BLOCKED)
		syscall(SYS_futex, futex, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void wake_all(void)
{
	struct worker *list = atomic_exchange(&waiting, NULL);
	uint64_t now = now_ns();
	while (list) {
		struct worker *next = list->next;
		list->woken_at = now;
		wake(&list->futex);
		list = next;
	}
}

static void *send_messages(void *arg)
{
	while (!atomic_load(&stopping)) {
		atomic_store(&messenger, BLOCKED);
		wake_all();
		/* A worker that came in between has set `messenger` to RUNNING. */
		if (atomic_load(&stopping))
			break;
		await(&messenger);
	}
	wake_all();
	return arg;
}

static void wait_for_message(struct worker *worker)
{
	atomic_store(&worker->futex, BLOCKED);
	struct worker *head = atomic_load(&waiting);
	do
		worker->next = head;
	while (!atomic_compare_exchange_weak(&waiting, &head, worker));
	wake(&messenger);
	await(&worker->futex);
	if (atomic_load(&counting))
		record(&worker->wakeups, now_ns() - worker->woken_at);
}

static void multiply(struct worker *w)
{
	for (int i = 0; i < SIDE; i++)
		for (int j = 0; j < SIDE; j++) {
			unsigned long sum = 0;
			for (int k = 0; k < SIDE; k++)
				sum += w->a[i][k] * w->b[k][j];
			w->product[i][j] = sum;
		}
	/* The next multiplication depends on this one. */
	w->a[0][0] = w->product[SIDE - 1][SIDE - 1];
}

static void *work(void *arg)
{
	struct worker *worker = arg;
	for (unsigned long i = 0; i < SIDE; i++)
		for (unsigned long j = 0; j < SIDE; j++) {
			worker->a[i][j] = i * 3 + j;
			worker->b[i][j] = j * 5 + i;
		}
	while (!atomic_load(&stopping)) {
		wait_for_message(worker);
		uint64_t begin = now_ns();
		usleep(SLEEP_US);
		for (long i = 0; i < operations; i++)
			multiply(worker);
		if (atomic_load(&counting)) {
			record(&worker->services, now_ns() - begin);
			worker->requests++;
		}
	}
	return NULL;
}

static struct worker *start_workers(long count)
{
	struct worker *workers = calloc((size_t)count, sizeof *workers);
	if (!workers)
		fail("calloc", ENOMEM);
	for (long i = 0; i < count; i++)
		workers[i].thread = start(work, &workers[i]);
	return workers;
}

/* The message thread ends only after the workers: until then it releases those that wait. */
static void stop(struct worker *workers, long count, pthread_t messages)
{
	atomic_store(&stopping, 1);
	wake(&messenger);
	join(messages);
	for (long i = 0; i < count; i++) {
		while (pthread_tryjoin_np(workers[i].thread, NULL) == EBUSY) {
			wake_all();
			sleep_ms(1);
		}
	}
}

static void report(const struct worker *workers, long count, double seconds)
{
	static struct histogram wakeups, services;
	uint64_t requests = 0;
	for (long i = 0; i < count; i++) {
		merge(&wakeups, &workers[i].wakeups);
		merge(&services, &workers[i].services);
		requests += workers[i].requests;
	}
	printf("{\"wakeup_p50_ns\": %llu, \"wakeup_p99_ns\": %llu, \"wakeup_p999_ns\": %llu, ",
	       (unsigned long long)percentile(&wakeups, 50), (unsigned long long)percentile(&wakeups, 99),
	       (unsigned long long)percentile(&wakeups, 99.9));
	printf("\"request_p50_ns\": %llu, \"request_p99_ns\": %llu, \"requests_per_s\": %.3f, \"wakeups\": %llu}\n",
	       (unsigned long long)percentile(&services, 50), (unsigned long long)percentile(&services, 99),
	       (double)requests / seconds, (unsigned long long)wakeups.count);
}

int main(int argc, char **argv)
{
	if (argc != 4) {
		fprintf(stderr, "usage: schbench WORKERS MILLISECONDS OPERATIONS\n");
		return 2;
	}
	long count = number(argv[1], 1, "WORKERS"), ms = number(argv[2], 1, "MILLISECONDS");
	operations = number(argv[3], 1, "OPERATIONS");
	pthread_t messages = start(send_messages, NULL);
	struct worker *workers = start_workers(count);
	sleep_ms(ms / 10 + 1);
	uint64_t begin = now_ns();
	atomic_store(&counting, 1);
	sleep_ms(ms);
	atomic_store(&counting, 0);
	double seconds = (double)(now_ns() - begin) / 1e9;
	stop(workers, count, messages);
	report(workers, count, seconds);
	free(workers);
	return 0;
}
