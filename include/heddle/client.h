/* Heddle's steering for programs (libheddle).
 *
 *     int fds[N];                                  // sockets with SO_REUSEPORT, bound to one port
 *     int id = hd_deploy("scan-avoid", "socket-select", fds, N);
 *     if (id < 0)
 *         fprintf(stderr, "%s\n", hd_error());
 *
 *     // in the thread that serves fds[k]
 *     hd_executor_bind(id, k);
 *     hd_busy(3);                                  // a long request: one store, no system call
 *     hd_idle();
 *
 * Link with -lheddle. heddled deploys policies for users who are not root; root does not need it.
 * HEDDLE_SOCKET in the environment names another socket of heddled, HEDDLE_DIRECT=1 bypasses it (root only).
 *
 * On failure, calls that return int return a negative number of errno.h, and calls that return pointers
 * return NULL; hd_error() returns a text. EINVAL: invalid arguments. ENOENT: no such object, or heddled is
 * not running. EBUSY: already in use. EPERM: not permitted. EOPNOTSUPP: not supported by this kernel or
 * machine. EIO: the kernel refused. Any thread may make any call. */
#ifndef HEDDLE_CLIENT_H
#define HEDDLE_CLIENT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the error text of the calling thread's last call that failed. Valid until its next call. */
const char *hd_error(void);

/* Deploys a policy: executor i is fds[i]. `policy` is a shipped one ("sita"), with parameters
 * ("sita:scan=2"), or a file ("./mine.c", compiled here by clang, or "./mine.o"). `hook` is "socket-select"; the
 * other hooks need more: hd_deploy_packets and hd_stream_open. Returns the attachment's number; the attachment
 * ends with its sockets. */
int hd_deploy(const char *policy, const char *hook, const int *fds, uint32_t count);

/* A map of an attachment. */
typedef struct hd_map hd_map;

/* A map that a policy declares as `name`, and the map that it uses instead. */
struct hd_share {
	const char *name;
	const hd_map *map;
};

/* The same, with maps of other attachments instead of the policy's own, so that programs and hooks share
 * them. They must have the size and kind that the policy declares. */
int hd_deploy_sharing(const char *policy, const char *hook, const int *fds, uint32_t count,
		      const struct hd_share *shares, uint32_t share_count);

/* An AF_XDP socket of executor `executor`, bound to receive queue `queue`. An executor has one for each queue. */
struct hd_xdp_socket {
	uint32_t executor, queue;
	int fd;
};

/* Packets below sockets: those of the ports of the `bound` sockets (UDP, or listening TCP), as they arrive at
 * `interface`. For "cpu-redirect", executor i is CPU cpus[i]; for "xdp-drv" and "xdp-skb", executors are AF_XDP
 * sockets. Leave the others empty. */
struct hd_packets {
	const char *interface;
	const int *bound;
	uint32_t bound_count;
	const uint32_t *cpus;
	uint32_t cpu_count;
	const struct hd_xdp_socket *sockets;
	uint32_t socket_count;
};

/* Deploys a policy at one of these hooks. Returns the attachment's number; the attachment ends with the `bound`
 * sockets. hd_replace and hd_detach (with -1) are for it, too. */
int hd_deploy_packets(const char *policy, const char *hook, const struct hd_packets *packets,
		      const struct hd_share *shares, uint32_t share_count);

/* Replaces the policy of an attachment. No input is lost meanwhile; maps of the same name and shape stay. */
int hd_replace(int attachment, const char *policy);

/* Ends an attachment. If `fd` is one of its sockets, the kernel's program is removed at once; with -1 it
 * stays, empty, until the sockets are closed. */
int hd_detach(int attachment, int fd);

/* Makes `fd` executor `index`, or the first free one if `index` is negative. Returns the index. */
int hd_executor_add(int attachment, int fd, int index);

/* Binds the calling thread, until it ends, to executor `index` for hd_busy and hd_idle. Agents use this too:
 * `heddle agent run --class-map ATTACHMENT` schedules the thread by what it is busy with. */
int hd_executor_bind(int attachment, uint32_t index);

/* Marks the calling thread's executor as busy with work of `class` (any number but 0), or as idle. One store
 * each. No effect without hd_executor_bind. */
void hd_busy(uint32_t class_);
void hd_idle(void);

/* Opens a map: "7/state" is map `state` of attachment 7. Only the attachment's user and root may. */
hd_map *hd_map_open(const char *path);

/* Closes a map. The map and the memory of hd_map_mmap must not be used any more. NULL is ignored. */
void hd_map_close(hd_map *map);

/* The size of a key and of a value in bytes, the number of entries, and the distance between values in
 * hd_map_mmap in bytes (0: the map cannot be mapped). */
struct hd_map_shape {
	uint32_t key_size, value_size, entries, stride;
};

int hd_map_shape(const hd_map *map, struct hd_map_shape *shape);

/* Copies the value of *key to *value. ENOENT if there is none. Makes a system call. */
int hd_map_lookup(const hd_map *map, const void *key, void *value);

/* Sets the value of *key to *value. Makes a system call. */
int hd_map_update(const hd_map *map, const void *key, const void *value);

/* Maps the values of an array into this process's memory: value i is at offset `stride` * i. The policy and
 * other programs use them concurrently: use atomics. Valid until hd_map_close. */
void *hd_map_mmap(const hd_map *map);

/* Requests in TCP streams to workers (the hook "stream"; experimental, docs/steering/streams.md). It takes
 * CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, ends with the process, and heddled has no part in it. */
typedef struct hd_stream hd_stream;

/* How requests are framed. All numbers are bytes. */
struct hd_framing {
	uint32_t length_offset, length_size; /* where a message has its length: 1, 2, 4 or 8 bytes */
	uint32_t little_endian;		     /* 0: the length is in network order */
	uint32_t counts_header;		     /* 0: it counts what follows the header */
	uint32_t header;		     /* everything before the payload */
	int32_t tag;			     /* where the connection's cookie is written into it; -1: nowhere */
	uint32_t most;			     /* the longest message; 0: 64 KiB */
};

/* Loads the policy. Nothing is scheduled until there are workers and connections. */
hd_stream *hd_stream_open(const char *policy, const struct hd_framing *framing);

/* Adds a worker and returns its index. Its requests are read from *fd, which the caller closes. */
int hd_stream_worker(hd_stream *stream, int *fd);

/* Schedules the requests of a TCP connection from now on; *cookie (which may be NULL) is what tags carry. */
int hd_stream_connection(hd_stream *stream, int fd, uint64_t *cookie);

/* Replaces the policy. A request meets the old one or the new one. */
int hd_stream_replace(hd_stream *stream, const char *policy);

/* Ends it: requests stay with their connections. No thread may use it any more. NULL is ignored. */
void hd_stream_close(hd_stream *stream);

#ifdef __cplusplus
}
#endif

#endif
