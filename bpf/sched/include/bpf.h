/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Sections, maps and helpers of the agents' kernel programs. No system headers: any clang compiles them. */
#ifndef HEDDLE_SCHED_BPF_H
#define HEDDLE_SCHED_BPF_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef int __s32;
typedef long long __s64;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

#define SEC(name) __attribute__((section(name), used))
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))
#define __ksym __attribute__((section(".ksyms")))
#define __weak __attribute__((weak))
#define barrier() asm volatile("" ::: "memory")

#define __uint(name, value) int(*name)[value]
#define __type(name, value) typeof(value) *name
#define __array(name, value) typeof(value) *name[]

enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};

#define BPF_F_NO_PREALLOC 1
#define BPF_F_MMAPABLE 1024
#define BPF_ANY 0
#define BPF_LOCAL_STORAGE_GET_F_CREATE 1
#define BPF_RB_NO_WAKEUP 1
#define BPF_RB_FORCE_WAKEUP 2

struct task_struct;
struct bpf_map;
struct bpf_timer {
	__u64 opaque[2];
} __attribute__((aligned(8)));
struct bpf_spin_lock {
	__u32 val;
};

#define HELPER(number) ((void *)number)
static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = HELPER(1);
static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value, __u64 flags) = HELPER(2);
static long (*const bpf_map_delete_elem)(void *map, const void *key) = HELPER(3);
static __u64 (*const bpf_ktime_get_ns)(void) = HELPER(5);
static __u32 (*const bpf_get_smp_processor_id)(void) = HELPER(8);
static __u64 (*const bpf_get_current_pid_tgid)(void) = HELPER(14);
static void (*const bpf_spin_lock)(struct bpf_spin_lock *lock) = HELPER(93);
static void (*const bpf_spin_unlock)(struct bpf_spin_lock *lock) = HELPER(94);
static long (*const bpf_probe_read_kernel)(void *to, __u32 size, const void *from) = HELPER(113);
static long (*const bpf_probe_read_kernel_str)(void *to, __u32 size, const void *from) = HELPER(115);
static void *(*const bpf_ringbuf_reserve)(void *ring, __u64 size, __u64 flags) = HELPER(131);
static void (*const bpf_ringbuf_submit)(void *data, __u64 flags) = HELPER(132);
static void *(*const bpf_task_storage_get)(void *map, struct task_struct *task, void *value, __u64 flags) = HELPER(156);
static long (*const bpf_task_storage_delete)(void *map, struct task_struct *task) = HELPER(157);
static struct task_struct *(*const bpf_get_current_task_btf)(void) = HELPER(158);
static long (*const bpf_for_each_map_elem)(void *map, void *callback, void *ctx, __u64 flags) = HELPER(164);
static long (*const bpf_timer_init)(struct bpf_timer *timer, void *map, __u64 flags) = HELPER(169);
static long (*const bpf_timer_set_callback)(struct bpf_timer *timer, void *callback) = HELPER(170);
static long (*const bpf_timer_start)(struct bpf_timer *timer, __u64 nanoseconds, __u64 flags) = HELPER(171);
static long (*const bpf_timer_cancel)(struct bpf_timer *timer) = HELPER(172);
static long (*const bpf_loop)(__u32 turns, void *callback, void *ctx, __u64 flags) = HELPER(181);

/* CO-RE: resolved with the running kernel's types when the object is loaded. */
#define bpf_core_field_exists(field) __builtin_preserve_field_info(field, 2)
#define bpf_core_type_size(type) __builtin_preserve_type_info(*(type *)0, 1)
#define bpf_core_enum_value_exists(type, value) __builtin_preserve_enum_value(*(typeof(type) *)value, 0)
#define bpf_core_enum_value(type, value) __builtin_preserve_enum_value(*(typeof(type) *)value, 1)
#define bpf_ksym_exists(symbol) (!!(symbol))

#define ACCESS(x) (*(volatile typeof(x) *)&(x))

#endif
