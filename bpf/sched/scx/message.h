/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Messages. The order: the state, then the thread's sequence number, then the queue's, then the message. */
#ifndef HEDDLE_SCX_MESSAGE_H
#define HEDDLE_SCX_MESSAGE_H

#include "maps.h"

/* Puts a message into a ring. If it is full, the loss is counted, and the agent reads the status words. */
static __always_inline void hd_put(__u32 number, const struct hd_message *content)
{
	struct hd_queue *queue = hd_queue(number);
	struct hd_message *message;
	__u64 aseq;
	void *ring;

	if (!queue)
		return;
	aseq = __sync_fetch_and_add(&queue->aseq, 1) + 1;
	ring = bpf_map_lookup_elem(&hd_rings, &number);
	message = ring ? bpf_ringbuf_reserve(ring, sizeof(*message), 0) : NULL;
	if (!message) {
		__sync_fetch_and_add(&queue->lost, 1);
		return;
	}
	*message = *content;
	message->aseq = aseq;
	message->at = bpf_ktime_get_ns();
	/* A polling reader is spared the interrupt that a wakeup costs the sender. */
	bpf_ringbuf_submit(message, queue->wakeup ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}

/* Sends a message about a thread, whose state was changed before. Global functions are verified once, whatever
 * calls them. */
__noinline int hd_notify(__u32 kind, __u32 slot, __u32 cpu, __u64 info)
{
	struct hd_thread *t = hd_thread(slot);
	struct hd_message content = {.kind = kind, .slot = slot, .cpu = cpu, .info = info};

	if (!t)
		return 0;
	content.tid = t->tid;
	content.tseq = __sync_fetch_and_add(&t->tseq, 1) + 1;
	hd_put(t->queue, &content);
	return 0;
}

/* Sends a message about a CPU. */
__noinline int hd_notify_cpu(__u32 kind, __u32 cpu)
{
	struct hd_cpu *c = hd_cpu(cpu);
	struct hd_message content = {.kind = kind, .cpu = cpu};

	if (c)
		hd_put(c->queue, &content);
	return 0;
}

#endif
