/* The base of Heddle's own programs in the kernel. Policies do not see this. */
#ifndef HD_HOOKS_H
#define HD_HOOKS_H

#define HD_POLICY
#include "heddle.h"

#define HD_KIND_PER_CPU 3
#define HD_KIND_PROGRAMS 4
#define HD_KIND_REUSEPORT 5
#define HD_KIND_CPUS 6
#define HD_KIND_XSKS 7
#define HD_KIND_SOCKETS 8
#define HD_KIND_LRU 9
#define HD_KIND_GROWING 10
#define HD_KIND_PREFIXES 11
#define HD_KIND_SOCKETS_BY_KEY 12

#define HD_OWN_MAP(name, kind, key, value, n) struct hd_map name HD_SECTION(".hd.maps") = {kind, key, value, n}

/* The policy, which is linked in. It is untrusted, and the verifier lets a function read its caller's registers and
 * stack. So the input lies in a map and not on the hook's stack, where spilled pointers to packets could be too,
 * and the other argument registers are cleared: the policy gets one pointer, to the input, and no way from there. */
extern u32 hd_policy(struct hd_in *in, u64, u64, u64, u64);

extern struct hd_map hd_inputs;
typedef struct hd_in hd_inputs_value;

/* Returns this CPU's input, all zeroes, to be filled in. Never 0, but the verifier wants the check. */
HD_INLINE struct hd_in *hd_blank(void)
{
	struct hd_in *in = hd_at(hd_inputs, 0);

	if (in)
		__builtin_memset(in, 0, sizeof *in);
	return in;
}

/* How many executors the maps of this attachment have room for, set when it is made. Constant to the verifier, so that
 * a group of a few sockets has small maps. HD_FEW unless Heddle says otherwise; packets and streams have no more. */
struct hd_room {
	u32 executors;
};

#define HD_FEW 64

extern const volatile struct hd_room hd_room_constants;

/* Counters of inputs: a line for each executor, and one after them for inputs that went to none. */
struct hd_count {
	u64 selected; /* for the last line: passed */
	u64 failed;   /* chosen, and not there; for the last line: an index that there is not */
	u64 dropped;  /* for the other lines: chosen, not there, and given to another executor */
};

extern struct hd_map hd_counts;
typedef struct hd_count hd_counts_value;

/* Increments one of the three counters. Without branches: compilers would turn them into an offset, which the
 * verifier refuses to unprivileged programs. */
HD_INLINE void hd_count(struct hd_count *count, int selected, int dropped)
{
	count->selected += !!selected;
	count->dropped += !!dropped;
	count->failed += !selected && !dropped;
}

/* Returns the index of an executor, or HD_PASS or HD_DROP, and counts it; a wrong index passes. */
HD_INLINE u32 hd_decide(struct hd_in *in)
{
	u32 choice = hd_policy(in, 0, 0, 0, 0);

	if (choice < hd_room_constants.executors)
		return choice;
	struct hd_count *none = hd_at(hd_counts, hd_room_constants.executors);
	if (!none)
		return HD_PASS;
	hd_count(none, choice == HD_PASS, choice == HD_DROP);
	return choice == HD_DROP ? HD_DROP : HD_PASS;
}

/* Counts whether a choice could be enforced. */
HD_INLINE void hd_enforced(u32 choice, int worked)
{
	struct hd_count *count = hd_at(hd_counts, choice);

	if (count)
		hd_count(count, worked, 0);
}

#define HD_MIN(a, b) ((a) < (b) ? (a) : (b))

#endif
