/* The policy's vocabulary in user space. Included by policy.h; do not include it directly.
 *
 * A policy becomes a shared object of its own, which Heddle loads once for every instance, so its variables and
 * maps belong to one instance. crates/steer-abi knows the layout of the structures below. */
#ifndef HEDDLE_POLICY_NATIVE_H
#define HEDDLE_POLICY_NATIVE_H

/* Incremented with any change of a structure here. */
#define HD_NATIVE_VERSION 2

/* The parameters: written before the first decision. */
#define HD_PARAM_KIND volatile
#define HD_PARAM_SECTION "hd_params"

/* A map; its values are in the object's own memory. */
struct hd_map {
	const char *name;
	void *values;
	u32 kind, key_size, value_size, entries;
	u32 stride; /* distance between values in bytes */
} __attribute__((aligned(64)));

#define HD_KIND_ARRAY 1
#define HD_KIND_HASH 2

#define HD_ARRAY(name, type, n, alignment)                                                        \
	typedef type name##_value;                                                                \
	static struct {                                                                           \
		name##_value value;                                                               \
	} __attribute__((aligned(alignment))) name##_values[n];                                   \
	static struct hd_map name HD_SECTION("hd_maps") = {                                       \
		#name, name##_values, HD_KIND_ARRAY, 4, sizeof(type), (n), sizeof name##_values[0]}

/* One line for each executor (or each of `n` of anything): a value of `type` in cache lines of its own. */
#define HD_MAP(name, type, n) HD_ARRAY(name, type, n, 64)

/* A packed array, for large tables. */
#define HD_TABLE(name, type, n) HD_ARRAY(name, type, n, 8)

#define HD_WORDS(type) ((sizeof(type) + 7) / 8)

/* Values by key: open addressing; a slot is a mark, the key and the value. */
#define HD_HASH(name, key, type, n)                                                               \
	typedef key name##_key;                                                                   \
	typedef type name##_value;                                                                \
	static u64 name##_values[n][1 + HD_WORDS(key) + HD_WORDS(type)];                          \
	static struct hd_map name HD_SECTION("hd_maps") = {                                       \
		#name, name##_values, HD_KIND_HASH, sizeof(key), sizeof(type), (n), sizeof name##_values[0]}

/* Returns the slot of `key`, or the free one where it would go; 0 if it is missing and the map is full. */
static inline u64 *hd_slot_of(const struct hd_map *map, const void *key)
{
	const u8 *bytes = key;
	u64 hash = 14695981039346656037ull;

	for (u32 i = 0; i < map->key_size; i++)
		hash = (hash ^ bytes[i]) * 1099511628211ull;
	for (u32 i = 0; i < map->entries; i++) {
		u64 *slot = (u64 *)((u8 *)map->values + (hash + i) % map->entries * map->stride);
		if (!slot[0] || !__builtin_memcmp(slot + 1, key, map->key_size))
			return slot;
	}
	return 0;
}

#define hd_value_of(slot, name) ((name##_value *)((slot) + 1 + HD_WORDS(name##_key)))

/* Returns a pointer to the value at `index` of a map or table, or 0 if there is none. Use
 * __sync_fetch_and_add and the like if others may change it too. */
#define hd_at(name, index)                                                                        \
	({                                                                                        \
		u32 hd_index_ = (index);                                                          \
		hd_index_ < sizeof name##_values / sizeof name##_values[0]                        \
			? &name##_values[hd_index_].value                                         \
			: (name##_value *)0;                                                      \
	})

/* Returns a pointer to the value of a key in a hash, or 0 if there is none. */
#define hd_find(name, key)                                                                        \
	({                                                                                        \
		name##_key hd_key_ = (key);                                                       \
		u64 *hd_slot_ = hd_slot_of(&name, &hd_key_);                                      \
		hd_slot_ && hd_slot_[0] ? hd_value_of(hd_slot_, name) : (name##_value *)0;        \
	})

/* Sets the value of a key in a hash. Returns 0, or a negative number if the hash is full. */
#define hd_put(name, key, given)                                                                  \
	({                                                                                        \
		name##_key hd_key_ = (key);                                                       \
		u64 *hd_slot_ = hd_slot_of(&name, &hd_key_);                                      \
		if (hd_slot_) {                                                                   \
			hd_slot_[0] = 1;                                                          \
			__builtin_memcpy(hd_slot_ + 1, &hd_key_, sizeof hd_key_);                 \
			*hd_value_of(hd_slot_, name) = (given);                                   \
		}                                                                                 \
		hd_slot_ ? 0 : -7;                                                                \
	})

/* What Heddle passes for one decision. */
struct hd_host {
	void *context;
	u32 (*idle)(void *context, u32 k);
	u32 (*qlen)(void *context, u32 k);
	u64 (*now)(void *context);
	u32 (*random)(void *context);
	u32 (*cpu)(void *context);
	struct hd_line *lines; /* HD_MAX_EXECUTORS of them */
	u32 executors;
};

/* Heddle makes one decision at a time. */
static const struct hd_host *hd_host;

static struct hd_control {
	u32 executors;
} hd_control;

HD_INLINE u64 hd_now(void)
{
	return hd_host->now(hd_host->context);
}

HD_INLINE u32 hd_random(void)
{
	return hd_host->random(hd_host->context);
}

HD_INLINE u32 hd_cpu(void)
{
	return hd_host->cpu(hd_host->context);
}

/* Returns 1 if executor `k` has no input waiting and a thread sleeps until one comes. */
HD_INLINE u32 hd_idle(u32 k)
{
	return hd_host->idle(hd_host->context, k);
}

/* Returns how many inputs wait in the queue of executor `k`. */
HD_INLINE u32 hd_qlen(u32 k)
{
	return hd_host->qlen(hd_host->context, k);
}

/* Returns the line of executor `k`, or 0 if there is none. */
HD_INLINE struct hd_line *hd_line(u32 k)
{
	return k < HD_MAX_EXECUTORS ? &hd_host->lines[k] : 0;
}

u32 hd_policy(struct hd_in *in);

static u32 hd_decide(struct hd_in *in, const struct hd_host *host)
{
	hd_host = host;
	hd_control.executors = host->executors;
	return hd_policy(in);
}

/* The linker's symbols for the ends of the two sections, which a policy may lack. */
#define HD_END(type, name) extern type name[] __attribute__((weak, visibility("hidden")))
HD_END(struct hd_map, __start_hd_maps);
HD_END(struct hd_map, __stop_hd_maps);
HD_END(volatile struct hd_param, __start_hd_params);
HD_END(volatile struct hd_param, __stop_hd_params);

/* The only symbol that the object exports. */
extern const struct hd_native {
	u64 version;
	u32 (*decide)(struct hd_in *in, const struct hd_host *host);
	struct hd_map *maps, *maps_end;
	volatile struct hd_param *params, *params_end;
} hd_native;

__attribute__((visibility("default"))) const struct hd_native hd_native = {
	HD_NATIVE_VERSION, hd_decide,	      __start_hd_maps, __stop_hd_maps,
	__start_hd_params, __stop_hd_params,
};

#endif
