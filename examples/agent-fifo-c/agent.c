/* First in, first out, as an agent on messages and transactions: agent CPU[,CPU...] PID. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <heddle/agent.h>

enum { MOST_CPUS = 64, RETRY_NS = 1000000 };

/* State of each slot's thread, from its last message. */
static struct known {
	uint32_t tid;
	uint64_t tseq;
	int runnable, queued, offered;
} threads[HD_THREADS];

/* Ring of waiting threads' slots, the oldest at `first`. A slot is in it at most once, so it never overflows. */
static uint32_t waiting[HD_THREADS];
static unsigned first, last;

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, hd_error());
	exit(1);
}

static void push(uint32_t slot)
{
	if (!threads[slot].runnable || threads[slot].queued)
		return;
	threads[slot].queued = 1;
	waiting[last++ % HD_THREADS] = slot;
}

static void know(uint32_t slot, uint32_t tid, uint64_t tseq, int runnable)
{
	struct known *known = &threads[slot];

	*known = (struct known){tid, tseq, runnable, known->queued, 0};
	push(slot);
}

/* Outcome, as listed in docs/design/agent.md. */
static void hear(const struct hd_message *message)
{
	int is;

	switch (message->kind) {
	case HD_THREAD_CREATED:
		is = message->info == 1;
		break;
	case HD_THREAD_WAKEUP:
	case HD_THREAD_PREEMPTED:
	case HD_THREAD_YIELD:
		is = 1;
		break;
	case HD_THREAD_BLOCKED:
	case HD_THREAD_DEAD:
	case HD_THREAD_DEPARTED:
	case HD_THREAD_TAKEN:
		is = 0;
		break;
	case HD_THREAD_AFFINITY:
	case HD_THREAD_PRIORITY:
		threads[message->slot].tseq = message->tseq;
		return;
	default: /* about a CPU */
		return;
	}
	know(message->slot, message->tid, message->tseq, is);
}

/* Status words are the truth: read at the start, and when messages were lost. */
static void look(hd_enclave *enclave)
{
	static uint32_t slots[HD_THREADS];
	int count = hd_enclave_threads(enclave, slots, HD_THREADS);

	for (int i = 0; i < count; i++) {
		struct hd_thread word;
		if (hd_enclave_thread(enclave, slots[i], &word) == 0)
			know(slots[i], word.tid, word.tseq, word.state == HD_PARKED);
	}
}

/* Builds the transaction of the next waiting thread; returns 0 if there is none. */
static int next(hd_enclave *enclave, struct hd_txn *txn, uint32_t cpu)
{
	while (first != last) {
		uint32_t slot = waiting[first++ % HD_THREADS];
		struct known *known = &threads[slot];
		known->queued = 0;
		/* A CPU has taken it: a message says so. */
		if (known->offered && hd_enclave_revoke(enclave, slot) == 0)
			known->runnable = 0;
		known->offered = 0;
		if (!known->runnable)
			continue;
		*txn = (struct hd_txn){.slot = slot, .tid = known->tid, .cpu = cpu,
				       .flags = HD_TXN_CHECK_TSEQ, .tseq = known->tseq};
		known->runnable = 0;
		return 1;
	}
	return 0;
}

/* Offers the next threads, one for each busy CPU: a CPU that becomes free takes one without waiting for this agent.
 * "rt" cannot do that. For CPUs of one NUMA node. */
static void offer(hd_enclave *enclave, uint32_t cpu, int busy)
{
	for (unsigned at = first; at != last && busy > 0; at++) {
		uint32_t slot = waiting[at % HD_THREADS];
		struct known *known = &threads[slot];
		if (known->runnable && !known->offered)
			known->offered = hd_enclave_offer(enclave, slot, known->tseq, cpu, 0) == 1;
		busy -= known->offered;
	}
}

/* Commits a thread to each free CPU. Returns when to retry if no message arrives before; 0: never. */
static uint64_t decide(hd_enclave *enclave, const uint32_t *cpus, int count)
{
	struct hd_txn txns[MOST_CPUS];
	struct hd_cpu word;
	uint32_t n = 0;
	int failed = 0, busy = 0;

	for (int i = 0; i < count; i++) {
		if (hd_enclave_cpu(enclave, cpus[i], &word) < 0 || !word.online)
			continue;
		if (word.current || word.latched)
			busy++;
		else
			n += next(enclave, &txns[n], cpus[i]);
	}
	if (hd_enclave_commit(enclave, txns, n, 0) < 0)
		die("commit");
	for (uint32_t i = 0; i < n; i++) {
		uint32_t result = txns[i].result;
		/* The next message reports the reason: it sleeps, runs, or has exited. */
		if (result == HD_COMMITTED || result == HD_NOT_RUNNABLE || result == HD_ON_CPU || result == HD_NO_THREAD)
			continue;
		threads[txns[i].slot].runnable = 1;
		push(txns[i].slot);
		failed++;
	}
	offer(enclave, cpus[0], busy + (int)n);
	return failed ? hd_enclave_now(enclave) + RETRY_NS : 0;
}

/* Runs above the threads that it schedules (SCHED_FIFO 1 under "rt"), without page faults. */
static void become_an_agent(void)
{
	struct sched_param priority = {.sched_priority = 20};

	if (mlockall(MCL_CURRENT | MCL_FUTURE) || sched_setscheduler(0, SCHED_FIFO, &priority))
		perror("not real-time");
}

int main(int argc, char **argv)
{
	uint32_t cpus[MOST_CPUS];
	int count = 0;
	hd_enclave *enclave;
	uint64_t lost = 0;

	if (argc != 3) {
		fprintf(stderr, "usage: %s CPU[,CPU...] PID\n", argv[0]);
		return 2;
	}
	for (char *at = argv[1]; *at && count < MOST_CPUS; at += *at == ',')
		cpus[count++] = (uint32_t)strtoul(at, &at, 10);
	enclave = hd_enclave_create("fifo-c", "auto", cpus, (uint32_t)count);
	if (!enclave || hd_enclave_attach(enclave) < 0)
		die("enclave");
	if (hd_enclave_join_process(enclave, (uint32_t)atoi(argv[2])) < 0)
		die("join");
	become_an_agent();
	look(enclave);
	puts("ready");
	fflush(stdout);
	/* Until its last thread has exited. */
	while (hd_enclave_threads(enclave, NULL, 0) > 0) {
		struct hd_message message;
		while (hd_enclave_next(enclave, HD_DEFAULT_QUEUE, &message) > 0)
			hear(&message);
		if (hd_enclave_lost(enclave, HD_DEFAULT_QUEUE) != lost) {
			lost = hd_enclave_lost(enclave, HD_DEFAULT_QUEUE);
			look(enclave);
		}
		hd_enclave_wait(enclave, HD_DEFAULT_QUEUE, decide(enclave, cpus, count));
	}
	hd_enclave_close(enclave);
	return 0;
}
