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
 * Link with -lheddle. heddled deploys for users who are not root; root needs none. HEDDLE_SOCKET in the environment
 * names another socket of heddled's, HEDDLE_DIRECT=1 says not to ask it (root only).
 *
 * Calls that return int give a negative number of errno.h on failure, calls that return pointers NULL; hd_error() says
 * what was wrong. EINVAL: it makes no sense. ENOENT: there is no such thing, or heddled does not run. EBUSY: taken.
 * EPERM: not yours. EOPNOTSUPP: this kernel or machine cannot. EIO: the kernel refused. Every call may come from any
 * thread. */
#ifndef HEDDLE_CLIENT_H
#define HEDDLE_CLIENT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What went wrong in the calling thread's last call that failed. Valid until its next call. */
const char *hd_error(void);

/* Deploys a policy: executor i is fds[i]. `policy` is a shipped one ("sita"), with parameters ("sita:scan=2"), or a file
 * ("./mine.c", compiled here by clang, or "./mine.o"). `hook` is one of `heddle steer attach --help`: "socket-select". The
 * attachment's number; it ends with its sockets. */
int hd_deploy(const char *policy, const char *hook, const int *fds, uint32_t count);

/* A map of an attachment. */
typedef struct hd_map hd_map;

/* A map that a policy declares as `name`, and the map that it uses instead. */
struct hd_share {
	const char *name;
	const hd_map *map;
};

/* The same, with maps of other attachments in the place of the policy's own: programs and hooks then share them. They
 * must be of the size and kind that the policy declares. */
int hd_deploy_sharing(const char *policy, const char *hook, const int *fds, uint32_t count,
		      const struct hd_share *shares, uint32_t share_count);

/* Puts another policy in an attachment's place. No input is lost in between; maps of the same name and shape stay. */
int hd_replace(int attachment, const char *policy);

/* Ends an attachment. With one of its sockets as `fd` the kernel's program comes off at once; with -1 it stays, empty,
 * until the sockets are closed. */
int hd_detach(int attachment, int fd);

/* Makes `fd` executor `index`, or the first free one if `index` is negative: its index. */
int hd_executor_add(int attachment, int fd, int index);

/* From now on, until it ends, the calling thread speaks for executor `index` in hd_busy and hd_idle. Agents find it by that
 * too: `heddle agent run --class-map ATTACHMENT` schedules it by what it is busy with. */
int hd_executor_bind(int attachment, uint32_t index);

/* The calling thread's executor works on something of `class` (any number but 0); or on nothing. A store each. Without
 * hd_executor_bind nothing happens. */
void hd_busy(uint32_t class_);
void hd_idle(void);

/* Opens a map: "7/state" is map `state` of attachment 7. Only the attachment's user and root can. */
hd_map *hd_map_open(const char *path);

/* Nobody may use the map, or the memory of hd_map_mmap, any more. NULL is none. */
void hd_map_close(hd_map *map);

/* Bytes of a key and of a value, how many values there can be, and bytes from one to the next in hd_map_mmap (0: the map
 * cannot be mapped). */
struct hd_map_shape {
	uint32_t key_size, value_size, entries, stride;
};

int hd_map_shape(const hd_map *map, struct hd_map_shape *shape);

/* Copies the value of *key to *value: ENOENT if there is none. A system call. */
int hd_map_lookup(const hd_map *map, const void *key, void *value);

/* Sets the value of *key to *value. A system call. */
int hd_map_update(const hd_map *map, const void *key, const void *value);

/* The values of an array in this process's memory: value i is `stride` * i bytes behind the result. The policy and other
 * programs use them at the same time: use atomics. Valid until hd_map_close. */
void *hd_map_mmap(const hd_map *map);

#ifdef __cplusplus
}
#endif

#endif
