/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* A table in arrays: sets of eight keys in one cache line, and an entry for each key in an array beside. Finding a key
 * costs a few nanoseconds, without a helper; nothing is allocated, so it works under the scheduler's locks; and user
 * space reads and empties the table through its mapping. A set that is full refuses further keys, which the caller
 * counts. Key 0 is "free". */
#ifndef HEDDLE_OBSERVE_TABLE_H
#define HEDDLE_OBSERVE_TABLE_H

#include "kernel.h"

#define OB_WAYS 8
#define OB_NONE (~0u)

#define ADD(counter, number) __sync_fetch_and_add(&(counter), number)

struct ob_set {
	__u64 key[OB_WAYS];
};

static __always_inline __u32 ob_set_of(__u64 key, __u32 sets)
{
	return (key * 0x9e3779b97f4a7c15ULL >> 32) & (sets - 1);
}

/* Returns the number of the entry of `key`, or OB_NONE. `sets` is a power of two. */
static __always_inline __u32 ob_find(void *map, __u32 sets, __u64 key)
{
	__u32 at = ob_set_of(key, sets);
	struct ob_set *set = bpf_map_lookup_elem(map, &at);

	if (!set)
		return OB_NONE;
#pragma unroll
	for (int way = 0; way < OB_WAYS; way++)
		if (ACCESS(set->key[way]) == key)
			return at * OB_WAYS + way;
	return OB_NONE;
}

/* Returns the number of a free entry, which is now of `key`, or OB_NONE. The caller has looked for the key. */
static __always_inline __u32 ob_claim(void *map, __u32 sets, __u64 key)
{
	__u32 at = ob_set_of(key, sets);
	struct ob_set *set = bpf_map_lookup_elem(map, &at);

	if (!set)
		return OB_NONE;
#pragma unroll
	for (int way = 0; way < OB_WAYS; way++)
		if (!ACCESS(set->key[way]) && !__sync_val_compare_and_swap(&set->key[way], 0, key))
			return at * OB_WAYS + way;
	return OB_NONE;
}

/* Whether the entry is of `key` still. */
static __always_inline bool ob_is(void *map, __u32 entry, __u64 key)
{
	__u32 at = entry / OB_WAYS;
	struct ob_set *set = bpf_map_lookup_elem(map, &at);

	return set && ACCESS(set->key[entry & (OB_WAYS - 1)]) == key;
}

static __always_inline void ob_free(void *map, __u32 entry)
{
	__u32 at = entry / OB_WAYS;
	struct ob_set *set = bpf_map_lookup_elem(map, &at);

	if (set)
		ACCESS(set->key[entry & (OB_WAYS - 1)]) = 0;
}

#endif
