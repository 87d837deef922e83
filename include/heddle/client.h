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
 * ("sita:scan=2"), or a file ("./mine.c", compiled here by clang, or "./mine.o"). `hook` is one of those that
 * `heddle steer attach --help` lists, for example "socket-select". Returns the attachment's number; the
 * attachment ends with its sockets. */
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

#ifdef __cplusplus
}
#endif

#endif
