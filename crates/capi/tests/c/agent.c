/* The calls of agent.h, on a simulated enclave of two CPUs. Says "fine", or which line is not. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <heddle.h>
#include <heddle/agent.h>

#define CHECK(what)                                                                               \
	do {                                                                                      \
		if (!(what)) {                                                                    \
			printf("line %d: %s (%s)\n", __LINE__, #what, hd_error());                \
			return 1;                                                                 \
		}                                                                                 \
	} while (0)

static struct hd_txn txn(const struct hd_message *message, uint32_t cpu)
{
	return (struct hd_txn){.slot = message->slot, .tid = message->tid, .cpu = cpu,
			       .flags = HD_TXN_CHECK_TSEQ, .tseq = message->tseq};
}

static int says(const char *part)
{
	return strstr(hd_error(), part) != NULL;
}

/* Messages, status words, a commit, and what is wrong with others. */
static int decides(hd_enclave *enclave)
{
	struct hd_message first, second, none;
	struct hd_thread thread;
	struct hd_cpu cpu;
	struct hd_txn txns[3];
	uint32_t numbers[4] = {9, 9, 9, 9};
	int slot = hd_model_spawn(enclave, 1);

	CHECK(slot >= 0 && hd_model_spawn(enclave, 1) >= 0);
	CHECK(hd_enclave_cpus(enclave, numbers, 1) == 2 && numbers[0] == 0 && numbers[1] == 9);
	CHECK(hd_enclave_threads(enclave, numbers, 4) == 2 && numbers[2] == 9);
	CHECK(hd_enclave_next(enclave, HD_DEFAULT_QUEUE, &first) == 1);
	CHECK(first.kind == HD_THREAD_CREATED && first.info == 1 && first.slot == (uint32_t)slot);
	CHECK(hd_enclave_next(enclave, HD_DEFAULT_QUEUE, &second) == 1 && second.aseq == first.aseq + 1);
	CHECK(hd_enclave_next(enclave, HD_DEFAULT_QUEUE, &none) == 0);
	CHECK(hd_enclave_thread(enclave, first.slot, &thread) == 0 && thread.state == HD_PARKED);
	CHECK(thread.tid == first.tid && thread.tseq == first.tseq && thread.weight == 100);

	txns[0] = txn(&first, 0);
	txns[1] = txn(&second, 1);
	txns[1].tseq--;
	txns[2] = txn(&second, 77);
	CHECK(hd_enclave_commit(enclave, txns, 3, 0) == 1);
	CHECK(txns[0].result == HD_COMMITTED && txns[1].result == HD_STALE && txns[2].result == HD_INVALID);
	CHECK(hd_enclave_cpu(enclave, 0, &cpu) == 0 && cpu.current == first.slot + 1 && cpu.occupant == HD_MANAGED);
	CHECK(hd_enclave_cpu(enclave, 1, &cpu) == 0 && cpu.current == 0 && cpu.online == 1);
	CHECK(hd_enclave_preempt(enclave, 0) == 1 && hd_enclave_preempt(enclave, 1) == 0);
	CHECK(hd_enclave_recall(enclave, 0) == 0);
	CHECK(hd_enclave_next(enclave, HD_DEFAULT_QUEUE, &first) == 1 && first.kind == HD_THREAD_PREEMPTED);

	txns[0] = txn(&first, 0);
	txns[1] = txn(&second, 77);
	CHECK(hd_enclave_commit(enclave, txns, 2, HD_GROUP_ALL) == 0);
	CHECK(txns[0].result == HD_POISONED && txns[1].result == HD_INVALID);
	txns[1] = txn(&second, 1);
	CHECK(hd_enclave_commit(enclave, txns, 2, HD_GROUP_ALL) == 2);
	CHECK(hd_model_block(enclave, first.slot) == 1 && hd_model_wake(enclave, first.slot) == 1);
	CHECK(hd_model_exit(enclave, second.slot) == 1 && hd_model_exit(enclave, second.slot) == 0);
	CHECK(hd_enclave_lost(enclave, HD_DEFAULT_QUEUE) == 0);
	return 0;
}

/* On CPU 0 runs `first`; a thread that is offered comes next, without a commit. */
static int offers(void)
{
	hd_enclave *enclave = hd_enclave_model(1);
	struct hd_message first, second, message;
	struct hd_txn one;
	struct hd_cpu cpu;

	CHECK(enclave && hd_enclave_attach(enclave) == 0);
	CHECK(hd_model_spawn(enclave, 1) >= 0 && hd_model_spawn(enclave, 1) >= 0);
	CHECK(hd_enclave_next(enclave, HD_DEFAULT_QUEUE, &first) == 1);
	CHECK(hd_enclave_next(enclave, HD_DEFAULT_QUEUE, &second) == 1);
	one = txn(&first, 0);
	CHECK(hd_enclave_commit(enclave, &one, 1, 0) == 1);
	CHECK(hd_enclave_describe(enclave, second.slot, 1, 7) == 0);
	CHECK(hd_enclave_describe(enclave, second.slot, 256, 7) == -EINVAL && says("up to 255"));
	CHECK(hd_enclave_offer(enclave, second.slot, second.tseq - 1, 0, 0) == 0);
	CHECK(hd_enclave_offer(enclave, second.slot, second.tseq, 0, 2) == -EINVAL && says("flags"));
	CHECK(hd_enclave_offer(enclave, second.slot, second.tseq, 7, 0) == -ENOENT && says("no CPU 7"));
	CHECK(hd_enclave_offer(enclave, second.slot, second.tseq, 0, HD_OFFER_OWN_CPU) == 1);
	CHECK(hd_enclave_revoke(enclave, second.slot) == 1 && hd_enclave_revoke(enclave, second.slot) == 0);
	CHECK(hd_enclave_offer(enclave, second.slot, second.tseq, 0, 0) == 1);
	CHECK(hd_model_block(enclave, first.slot) == 1);
	CHECK(hd_enclave_cpu(enclave, 0, &cpu) == 0 && cpu.current == second.slot + 1);
	CHECK(hd_enclave_next(enclave, HD_DEFAULT_QUEUE, &message) == 1 && message.kind == HD_THREAD_BLOCKED);
	CHECK(hd_enclave_next(enclave, HD_DEFAULT_QUEUE, &message) == 1 && message.kind == HD_THREAD_TAKEN);
	CHECK(message.slot == second.slot && message.cpu == 0);
	CHECK(hd_enclave_revoke(enclave, second.slot) == 0);
	hd_enclave_close(enclave);
	return 0;
}

/* The messages of one thread go to a queue of their own. */
static int has_queues(hd_enclave *enclave)
{
	struct hd_message message;
	uint32_t queue;
	int slot = hd_model_spawn(enclave, 0);

	while (hd_enclave_next(enclave, HD_DEFAULT_QUEUE, &message) > 0)
		;
	CHECK(hd_enclave_queue_create(enclave, 0, NULL) == -EINVAL);
	CHECK(hd_enclave_queue_create(enclave, 0, &queue) == 0 && queue != HD_DEFAULT_QUEUE);
	CHECK(hd_enclave_queue_configure(enclave, queue, 1) == 0);
	CHECK(hd_enclave_associate(enclave, (uint32_t)slot, queue) == 0);
	CHECK(hd_model_wake(enclave, (uint32_t)slot) == 1);
	CHECK(hd_enclave_next(enclave, HD_DEFAULT_QUEUE, &message) == 0);
	CHECK(hd_enclave_queue_destroy(enclave, queue) == -EBUSY);
	CHECK(hd_enclave_associate(enclave, (uint32_t)slot, HD_DEFAULT_QUEUE) == -EBUSY);
	CHECK(hd_enclave_next(enclave, queue, &message) == 1 && message.kind == HD_THREAD_WAKEUP);
	CHECK(hd_enclave_associate(enclave, (uint32_t)slot, HD_DEFAULT_QUEUE) == 0);
	CHECK(hd_enclave_associate_cpu(enclave, 0, queue) == 0);
	CHECK(hd_enclave_associate_cpu(enclave, 9, queue) == -ENOENT && says("no CPU 9"));
	CHECK(hd_enclave_associate_cpu(enclave, 0, HD_DEFAULT_QUEUE) == 0);
	CHECK(hd_enclave_queue_destroy(enclave, queue) == 0 && hd_enclave_queue_destroy(enclave, queue) == -ENOENT);
	CHECK(hd_enclave_queue_configure(enclave, queue, 1) == -ENOENT);
	return 0;
}

static int refuses(hd_enclave *enclave)
{
	struct hd_thread thread;
	struct hd_cpu cpu;
	uint32_t one = 0;

	CHECK(hd_enclave_attach(enclave) == -EBUSY);
	CHECK(hd_enclave_thread(enclave, 999, &thread) == -ENOENT && says("slot 999"));
	CHECK(hd_enclave_cpu(enclave, 2, &cpu) == -ENOENT && says("no CPU 2"));
	CHECK(hd_enclave_commit(enclave, NULL, 1, 0) == -EINVAL && says("NULL"));
	CHECK(hd_enclave_commit(enclave, NULL, 0, 0) == 0);
	CHECK(hd_enclave_commit(enclave, NULL, 0, 2) == -EINVAL && says("flags"));
	CHECK(hd_enclave_next(enclave, HD_DEFAULT_QUEUE, NULL) == -EINVAL);
	CHECK(hd_enclave_join(enclave, 1) == -EINVAL && says("created"));
	CHECK(hd_enclave_attach(NULL) == -EINVAL && says("NULL"));
	CHECK(!hd_enclave_model(0) && says("from 1 to"));
	CHECK(!hd_enclave_create("a/b", "auto", &one, 1) && says("`a/b` names no enclave"));
	CHECK(!hd_enclave_create("mine", "fast", &one, 1) && says("no backend `fast`"));
	CHECK(!hd_enclave_create_picking("mine", "fast", &one, 1, "lowest-hint") && says("no backend `fast`"));
	CHECK(!hd_enclave_create_picking("mine", "auto", &one, 1, NULL) && says("NULL"));
	CHECK(!hd_enclave_open("no-such-enclave") && says("no enclave `no-such-enclave`"));
	hd_enclave_close(NULL);
	return 0;
}

int main(void)
{
	hd_enclave *enclave = hd_enclave_model(2);

	CHECK(enclave && hd_enclave_attach(enclave) == 0);
	if (decides(enclave) || offers() || refuses(enclave))
		return 1;
	/* Returns at once, for there are messages; and at a time that is over. */
	CHECK(hd_enclave_wait(enclave, HD_DEFAULT_QUEUE, 0) == 0);
	CHECK(hd_enclave_detach(enclave) == 0 && hd_enclave_attach(enclave) == 0);
	if (has_queues(enclave))
		return 1;
	hd_enclave_close(enclave);
	puts("fine");
	return 0;
}
