/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Maps that the programs and user space share, and maps of the programs alone. */
#ifndef HEDDLE_SCX_MAPS_H
#define HEDDLE_SCX_MAPS_H

#include "compat.h"
#include "layout.h"

#define SHARED(name, number, value_type)                  \
	struct {                                          \
		__uint(type, BPF_MAP_TYPE_ARRAY);         \
		__uint(map_flags, BPF_F_MMAPABLE);        \
		__uint(max_entries, number);              \
		__type(key, __u32);                       \
		__type(value, value_type);                \
	} name SEC(".maps")

SHARED(hd_threads, HD_THREADS, struct hd_thread);
SHARED(hd_affinities, HD_THREADS, struct hd_affinity);
SHARED(hd_cpus, HD_CPUS, struct hd_cpu);
SHARED(hd_enclaves, HD_ENCLAVES, struct hd_enclave);
SHARED(hd_queues, HD_QUEUES, struct hd_queue);
SHARED(hd_txns, HD_ENCLAVES * HD_TXNS, struct hd_txn);
SHARED(hd_machine, 1, struct hd_machine);
SHARED(hd_names, HD_ENCLAVES, struct hd_name);
SHARED(hd_last_words, 1, struct hd_last_words);
SHARED(hd_hints, HD_THREADS, struct hd_hint);

struct hd_ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, HD_QUEUES);
	__type(key, __u32);
	__array(values, struct hd_ring);
} hd_rings SEC(".maps");

/* Threads that may join: tid to enclave. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, HD_THREADS);
	__type(key, __u32);
	__type(value, __u32);
} hd_joining SEC(".maps");

/* What the programs know of each thread of the machine. */
struct hd_task {
	__u32 slot;    /* plus one; 0: not managed */
	__u32 enclave; /* that it is in, or will be when it opts in */
	__u32 fresh;   /* its agent has no message of it yet */
	__u32 yielded; /* it is about to give up its CPU */
	__u32 pinned;  /* its affinity word shows one CPU only, because it may not migrate now */
	__u32 outside; /* it may run on none of its enclave's CPUs: no agent can commit it, or is to blame for its wait */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct hd_task);
} hd_tasks SEC(".maps");

#define LOOKUP(name, map, type)                                          \
	static __always_inline struct type *name(__u32 index)            \
	{                                                                \
		return bpf_map_lookup_elem(&map, &index);                \
	}

LOOKUP(hd_thread, hd_threads, hd_thread)
LOOKUP(hd_affinity, hd_affinities, hd_affinity)
LOOKUP(hd_cpu, hd_cpus, hd_cpu)
LOOKUP(hd_enclave, hd_enclaves, hd_enclave)
LOOKUP(hd_queue, hd_queues, hd_queue)
LOOKUP(hd_txn, hd_txns, hd_txn)
LOOKUP(hd_exit_text, hd_last_words, hd_last_words)
LOOKUP(hd_hint, hd_hints, hd_hint)

static __always_inline struct hd_machine *hd_all(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&hd_machine, &zero);
}

static __always_inline struct hd_task *hd_task(struct task_struct *p)
{
	return bpf_task_storage_get(&hd_tasks, p, NULL, 0);
}

/* Whether `p` is the thread in `slot`. Not by its number: a thread that executes a program has its new number long
 * before its slot does, see hd_exec, and may sleep or lose its CPU in between. */
static __always_inline bool hd_is_in(struct task_struct *p, __u32 slot)
{
	struct hd_task *k = hd_task(p);

	return k && k->slot == slot + 1;
}

/* Queues in the kernel ("DSQ"). Parked threads of an enclave are in one of HD_BUCKETS queues, which a commit
 * searches. */
#define HD_BUCKETS 64
#define HD_PARKING(enclave, slot) (0x10000ULL | ((__u64)(enclave) << 8) | ((slot) % HD_BUCKETS))
#define HD_LATCH(cpu) (0x20000ULL | (cpu))
#define HD_STAGE(cpu) (0x100000ULL | (cpu))
/* Threads that CPUs may take without the agent: any CPU of a node of the enclave, or one CPU. */
#define HD_FAST(enclave, node) (0x40000ULL | ((__u64)(enclave) << 8) | (node))
#define HD_OWN(cpu) (0x200000ULL | (cpu))
#define HD_NODES 64

#endif
