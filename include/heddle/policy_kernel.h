/* The policy's vocabulary inside the kernel. Included by policy.h; do not include it directly. */
#ifndef HEDDLE_POLICY_KERNEL_H
#define HEDDLE_POLICY_KERNEL_H

/* The description of a map. Heddle reads it when it links a policy, and makes the map from it. */
struct hd_map {
	u32 kind, key_size, value_size, entries;
};

#define HD_KIND_ARRAY 1
#define HD_KIND_HASH 2

/* The parameters; constants to the verifier. */
#define HD_PARAM_KIND const volatile
#define HD_PARAM_SECTION ".hd.params_constants"

/* One line for each executor (or each of `n` of anything): a value of `type` in cache lines of its own. */
#define HD_MAP(name, type, n)                                                                     \
	typedef type name##_value;                                                                \
	struct hd_map name HD_SECTION(".hd.maps") = {HD_KIND_ARRAY, 4, (sizeof(type) + 63) & ~63u, (n)}

/* A packed array, for large tables. */
#define HD_TABLE(name, type, n)                                                                   \
	typedef type name##_value;                                                                \
	struct hd_map name HD_SECTION(".hd.maps") = {HD_KIND_ARRAY, 4, (sizeof(type) + 7) & ~7u, (n)}

/* Values by key. Slower (a system call for programs); for keys that are not small numbers. */
#define HD_HASH(name, key, type, n)                                                               \
	typedef key name##_key;                                                                   \
	typedef type name##_value;                                                                \
	struct hd_map name HD_SECTION(".hd.maps") = {HD_KIND_HASH, sizeof(key), sizeof(type), (n)}

static void *(*const hd_helper_lookup)(void *map, const void *key) = (void *)1;
static long (*const hd_helper_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*const hd_helper_delete)(void *map, const void *key) = (void *)3;
static u64 (*const hd_helper_now)(void) = (void *)5;
static u32 (*const hd_helper_random)(void) = (void *)7;
static u32 (*const hd_helper_cpu)(void) = (void *)8;

/* Returns a pointer to the value at `index` of a map or table, or 0 if there is none. Use
 * __sync_fetch_and_add and the like if others may change it too. */
#define hd_at(name, index)                                                                        \
	({                                                                                        \
		u32 hd_index_ = (index);                                                          \
		(name##_value *)hd_helper_lookup(&name, &hd_index_);                              \
	})

/* Returns a pointer to the value of a key in a hash, or 0 if there is none. */
#define hd_find(name, key)                                                                        \
	({                                                                                        \
		name##_key hd_key_ = (key);                                                       \
		(name##_value *)hd_helper_lookup(&name, &hd_key_);                                \
	})

/* Sets the value of a key in a hash. Returns 0, or a negative number if the hash is full. */
#define hd_put(name, key, value)                                                                  \
	({                                                                                        \
		name##_key hd_key_ = (key);                                                       \
		name##_value hd_value_ = (value);                                                 \
		hd_helper_update(&name, &hd_key_, &hd_value_, 0);                                 \
	})

/* What Heddle passes to the policy. */
struct hd_control {
	u32 executors;
};

extern const volatile struct hd_control hd_control;

HD_INLINE u64 hd_now(void)
{
	return hd_helper_now();
}

HD_INLINE u32 hd_random(void)
{
	return hd_helper_random();
}

HD_INLINE u32 hd_cpu(void)
{
	return hd_helper_cpu();
}

/* The kernel's view of an executor that is a socket. Heddle supplies these two when it links the policy. */

/* Returns 1 if executor `k` has no input waiting and a thread sleeps until one comes. */
extern u32 hd_idle(u32 k);
/* Returns how many inputs wait in the queue of executor `k`. */
extern u32 hd_qlen(u32 k);

/* Returns the line of executor `k`, or 0 if there is none. Heddle supplies the map. */
extern struct hd_map hd_lines;
typedef struct hd_line hd_lines_value;
#define hd_line(k) hd_at(hd_lines, (k))

#endif
