/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* The few of the kernel's types that the observer reads, and helpers that only it calls. Only names and types of
 * members count: their offsets are resolved when the object is loaded (CO-RE). */
#ifndef HEDDLE_OBSERVE_KERNEL_H
#define HEDDLE_OBSERVE_KERNEL_H

#include "../../sched/include/bpf.h"

#define KERNEL_TYPE __attribute__((preserve_access_index))

typedef struct {
	long long counter;
} atomic64_t;

struct sched_info {
	unsigned long long run_delay;
} KERNEL_TYPE;

struct inode {
	__u16 i_mode;
} KERNEL_TYPE;

struct file {
	struct inode *f_inode;
} KERNEL_TYPE;

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
} KERNEL_TYPE;

struct files_struct {
	struct fdtable *fdt;
} KERNEL_TYPE;

struct task_struct {
	struct files_struct *files;
	__u32 pid;
	__u32 tgid;
	char comm[16];
	struct sched_info sched_info;
} KERNEL_TYPE;

struct sock_common {
	__u16 skc_num;
	__u16 skc_dport;
	volatile unsigned char skc_state;
	atomic64_t skc_cookie;
} KERNEL_TYPE;

struct sk_buff_head {
	__u32 qlen;
} KERNEL_TYPE;

struct sock {
	struct sock_common __sk_common;
	struct sk_buff_head sk_receive_queue;
	__u16 sk_protocol;
} KERNEL_TYPE;

struct tcp_sock {
	__u32 rcv_nxt;
	__u32 copied_seq;
} KERNEL_TYPE;

struct udp_sock {
	struct sk_buff_head reader_queue;
} KERNEL_TYPE;

/* A system call's number and first argument: of x86-64, and of arm64. */
struct pt_regs {
	unsigned long orig_ax;
	unsigned long di;
	int syscallno;
	unsigned long orig_x0;
} KERNEL_TYPE;

#define TASK_DEAD 0x80
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define TCP_ESTABLISHED 1
#define TCP_FIN_WAIT1 4
#define TCP_CLOSE 7
#define TCP_LAST_ACK 9
#define TCP_LISTEN 10
#define MSG_PEEK 2
#define S_IFMT 0170000
#define S_IFSOCK 0140000

static __u64 (*const bpf_get_socket_cookie)(void *sk) = HELPER(46);
static long (*const bpf_ringbuf_output)(void *ring, void *data, __u64 size, __u64 flags) = HELPER(130);
static struct tcp_sock *(*const bpf_skc_to_tcp_sock)(void *sk) = HELPER(137);
static struct pt_regs *(*const bpf_task_pt_regs)(struct task_struct *task) = HELPER(175);

#endif
