/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* The program at every switch of a CPU from one thread to another.
 *
 * Always: how long the thread that leaves had waited in a run queue, and how long it ran, into histograms of its group.
 * The kernel adds up the delay itself, so there is no program at wakeups and no state of threads: a CPU remembers what
 * it runs. Opt-in, by flags: an event of each switch, each thread's use of CPUs, and who ran while another waited. */
#include "include/switch.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ob_switch_control);
} control SEC(".maps");

/* User space sets the number of entries of these three: the number of CPUs, and that times OB_GROUPS. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ob_cpu_counts);
} counts SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, OB_GROUPS);
	__type(key, __u32);
	__type(value, struct ob_group);
} groups SEC(".maps");
struct ob_ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct ob_ring);
} rings SEC(".maps");

/* The group of each process, by its id. User space sets the number of entries by the highest id. */
struct ob_pids {
	__u8 group[OB_PIDS];
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ob_pids);
} group_of SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, OB_USE_SETS);
	__type(key, __u32);
	__type(value, struct ob_set);
} use_keys SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, OB_USE_SETS *OB_WAYS);
	__type(key, __u32);
	__type(value, struct ob_use);
} uses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} bursts SEC(".maps");

/* A thread's time on a CPU. */
struct turn {
	__u64 from;
	__u64 to;
	__u32 tid;
	__u32 spare;
};

/* What a CPU runs, and its last turns. */
struct cpu {
	__u64 on;
	__u64 delay; /* the kernel's sum of the thread's delay before this turn */
	__u64 turns; /* so far */
	__u32 tid;
	__u32 spare;
	__u64 now; /* of the switch at hand */
	struct turn last[OB_TURNS];
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

/* The bucket of a time: below 8 the time itself; above, the three bits after the leading one choose it. */
static __always_inline __u32 bucket(__u64 time)
{
	__u64 left = time | 8;
	__u32 power = 0;

	if (left >> 32) {
		power += 32;
		left >>= 32;
	}
	if (left >> 16) {
		power += 16;
		left >>= 16;
	}
	if (left >> 8) {
		power += 8;
		left >>= 8;
	}
	if (left >> 4) {
		power += 4;
		left >>= 4;
	}
	if (left >> 2) {
		power += 2;
		left >>= 2;
	}
	power += left >> 1;
	power -= 3;
	return power * 8 + (time >> power);
}

static __always_inline void count(struct ob_times *times, __u64 time)
{
	__u32 at = bucket(time);

	/* Only this CPU writes it. */
	if (at < OB_BUCKETS)
		times->count[at]++;
}

static __always_inline __u32 group(__u32 process)
{
	__u32 at = process / OB_PIDS;
	struct ob_pids *pids = bpf_map_lookup_elem(&group_of, &at);

	return pids ? pids->group[process & (OB_PIDS - 1)] & (OB_GROUPS - 1) : 0;
}

static __always_inline struct ob_use *find_use(__u32 tid)
{
	__u32 entry = ob_find(&use_keys, OB_USE_SETS, tid);

	return entry == OB_NONE ? NULL : bpf_map_lookup_elem(&uses, &entry);
}

static __noinline struct ob_use *new_use(struct task_struct *p, struct ob_switch_control *c)
{
	__u32 tid = p->pid, entry = ob_claim(&use_keys, OB_USE_SETS, tid);
	struct ob_use *u = entry == OB_NONE ? NULL : bpf_map_lookup_elem(&uses, &entry);

	if (!u) {
		ADD(c->refused, 1);
		return NULL;
	}
	__builtin_memset(u, 0, sizeof *u);
	u->tid = tid;
	u->process = p->tgid;
	bpf_probe_read_kernel(u->name, sizeof u->name, p->comm);
	return u;
}

/* Who ran while this CPU's thread waited: the turns of others here that overlap its wait. */
static __noinline int blame(struct cpu *cpu, __u64 from, __u64 to)
{
	for (__u32 back = 1; back <= OB_TURNS; back++) {
		struct turn *turn = &cpu->last[(cpu->turns - back) & (OB_TURNS - 1)];
		__u64 begin = turn->from > from ? turn->from : from, end = turn->to < to ? turn->to : to;
		struct ob_use *u;

		if (turn->to <= from)
			break;
		u = turn->tid != cpu->tid && end > begin ? find_use(turn->tid) : NULL;
		if (u)
			ADD(u->delayed, end - begin);
	}
	return 0;
}

/* Every burst at first, then every second, fourth...: the longer the recording, the fewer. */
static __always_inline bool is_sampled(__u64 number)
{
	__u64 every = 1;

#pragma unroll
	for (int i = 0; i < 24; i++)
		if (number >> 9 >= every)
			every <<= 1;
	return !(number & (every - 1));
}

static __always_inline void end_burst(struct ob_use *u, struct ob_switch_control *c, __u64 now)
{
	struct ob_burst burst = { u->bursts, u->slept, u->ran, u->tid, u->process };

	if (u->awake) {
		if (c->flags & OB_BURSTS && is_sampled(u->bursts) &&
		    bpf_ringbuf_output(&bursts, &burst, sizeof burst, BPF_RB_NO_WAKEUP))
			ADD(c->bursts_lost, 1);
		u->bursts++;
	}
	u->ran = u->slept = 0;
	u->asleep_at = now;
}

/* A thread of which this CPU saw the whole turn leaves it. */
static __noinline int add_use(struct task_struct *p, struct cpu *cpu, struct ob_switch_control *c, __u64 how)
{
	struct ob_use *u = find_use(p->pid);
	__u64 now = cpu->now, burst = now - cpu->on, delay = p->sched_info.run_delay - cpu->delay;

	if (!u)
		u = new_use(p, c);
	if (!u)
		return 0;
	u->cpu += burst;
	u->run_queue += delay;
	u->switches++;
	u->cpus |= 1ULL << (bpf_get_smp_processor_id() & 63);
	if (u->asleep_at) {
		if (cpu->on > u->asleep_at + delay)
			u->slept = cpu->on - u->asleep_at - delay;
		u->asleep_at = 0;
		u->awake = 1;
	}
	u->ran += burst;
	if (how & OB_PREEMPTED || !(how & ~OB_PREEMPTED))
		u->preempted++;
	else
		end_burst(u, c, now);
	if (how & TASK_DEAD)
		u->ended = 1;
	return 0;
}

static __always_inline void record(struct ob_switch_control *c, struct ob_cpu_counts *n, struct ob_event *event)
{
	__u32 at = event->cpu;
	void *ring = bpf_map_lookup_elem(&rings, &at);

	if (ring && bpf_ringbuf_output(ring, event, sizeof *event, BPF_RB_NO_WAKEUP))
		n->lost++;
}

SEC("tp_btf/sched_switch")
int observe_switch(__u64 *ctx)
{
	bool preempted = ctx[0];
	struct task_struct *prev = (void *)ctx[1], *next = (void *)ctx[2];
	__u32 zero = 0, state = ctx[3], here = bpf_get_smp_processor_id(), at, of = 0;
	struct ob_switch_control *c = bpf_map_lookup_elem(&control, &zero);
	struct ob_cpu_counts *n = bpf_map_lookup_elem(&counts, &here);
	struct cpu *cpu = bpf_map_lookup_elem(&cpus, &zero);
	__u64 now = bpf_ktime_get_ns(), delay = 0, flags;
	struct ob_group *g;

	if (!c || !n || !cpu)
		return 0;
	n->switches++;
	flags = c->flags;
	if (cpu->on && cpu->tid == prev->pid && prev->pid) {
		delay = prev->sched_info.run_delay - cpu->delay;
		of = group(prev->tgid);
		at = here * OB_GROUPS + of;
		g = bpf_map_lookup_elem(&groups, &at);
		if (g) {
			count(&g->delay, delay);
			count(&g->burst, now - cpu->on);
		}
		if (flags & OB_THREADS) {
			struct turn *turn = &cpu->last[cpu->turns & (OB_TURNS - 1)];

			cpu->now = now;
			add_use(prev, cpu, c, (preempted ? OB_PREEMPTED : 0) | state);
			if (of && delay)
				blame(cpu, cpu->on - delay, cpu->on);
			turn->from = cpu->on;
			turn->to = now;
			turn->tid = prev->pid;
			cpu->turns++;
		}
	}
	if (flags & OB_RECORD) {
		struct ob_event event = {
			now, next->pid, prev->pid, delay, (preempted ? OB_PREEMPTED : 0) | state, here, OB_START, OB_KERNEL,
		};

		record(c, n, &event);
	}
	cpu->on = now;
	cpu->delay = next->sched_info.run_delay;
	cpu->tid = next->pid;
	return 0;
}

char _license[] SEC("license") = "Dual MIT/GPL";
