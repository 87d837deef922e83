/* What Heddle calls of DPDK. Its data path is inline functions and bit fields, which Rust cannot use: each function
 * here wraps one of them, or the calls of one step. Results below zero are negated error numbers. */

#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <string.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>

/* Bytes of a frame that a buffer holds, without the headroom. */
#define FRAME 2048

/* Mbufs beside those in the rings: in bursts that are being received or built. */
#define SPARE 128

struct hd_stats {
    uint64_t received, sent, missed, no_buffer, receive_errors, send_errors;
};

/* Initialises DPDK. The calling thread keeps its affinity, which DPDK changes. */
int hd_init(int argc, char **argv)
{
    cpu_set_t before;
    int saved = sched_getaffinity(0, sizeof(before), &before);
    int rc = rte_eal_init(argc, argv);
    int error = rc < 0 ? -rte_errno : 0;
    if (saved == 0)
        sched_setaffinity(0, sizeof(before), &before);
    return error;
}

/* Gives the calling thread DPDK's per-thread state: caches of mbufs, for example. */
int hd_register_thread(void)
{
    return rte_thread_register() < 0 ? -rte_errno : 0;
}

void hd_unregister_thread(void)
{
    rte_thread_unregister();
}

/* Probes a device ("net_tap0,iface=x", "0000:03:00.0") and claims its port. */
int hd_attach(const char *device, uint16_t *port)
{
    struct rte_eth_dev_owner owner = {.name = "heddle"};
    char name[RTE_ETH_NAME_MAX_LEN];
    size_t length = strcspn(device, ",");
    if (length >= sizeof(name))
        return -ENAMETOOLONG;
    memcpy(name, device, length);
    name[length] = '\0';
    int rc = rte_dev_probe(device);
    if (rc < 0 && rc != -EEXIST)
        return rc;
    if ((rc = rte_eth_dev_get_port_by_name(name, port)) < 0)
        return rc;
    if ((rc = rte_eth_dev_owner_new(&owner.id)) < 0)
        return rc;
    return rte_eth_dev_owner_set(*port, &owner) < 0 ? -EBUSY : 0;
}

static int configure(uint16_t port, uint16_t queues, uint16_t *received, uint16_t *sent)
{
    struct rte_eth_dev_info info;
    struct rte_eth_conf conf;
    memset(&conf, 0, sizeof(conf));
    int rc = rte_eth_dev_info_get(port, &info);
    if (rc < 0)
        return rc;
    if (queues > info.max_rx_queues || queues > info.max_tx_queues)
        return -ERANGE;
    uint64_t hashes = (RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP) & info.flow_type_rss_offloads;
    if (queues > 1 && hashes != 0) {
        conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
        conf.rx_adv_conf.rss_conf.rss_hf = hashes;
    }
    if ((rc = rte_eth_dev_configure(port, queues, queues, &conf)) < 0)
        return rc;
    return rte_eth_dev_adjust_nb_rx_tx_desc(port, received, sent);
}

static int set_up_queue(uint16_t port, uint16_t queue, uint16_t received, uint16_t sent, struct rte_mempool **pool)
{
    int node = rte_eth_dev_socket_id(port);
    char name[RTE_MEMPOOL_NAMESIZE];
    snprintf(name, sizeof(name), "heddle-%u-%u", port, queue);
    *pool = rte_pktmbuf_pool_create(name, received + sent + SPARE, 32, 0, RTE_PKTMBUF_HEADROOM + FRAME, node);
    if (*pool == NULL)
        return -rte_errno;
    int rc = rte_eth_rx_queue_setup(port, queue, received, node, NULL, *pool);
    return rc < 0 ? rc : rte_eth_tx_queue_setup(port, queue, sent, node, NULL);
}

/* Configures and starts a port. `pools` gets the pool of each queue: those that are set are the caller's, even if it
 * fails. */
int hd_open(uint16_t port, uint16_t queues, uint16_t descriptors, struct rte_mempool **pools)
{
    uint16_t received = descriptors, sent = descriptors;
    int rc = configure(port, queues, &received, &sent);
    for (uint16_t queue = 0; rc >= 0 && queue < queues; queue++)
        rc = set_up_queue(port, queue, received, sent, &pools[queue]);
    return rc < 0 ? rc : rte_eth_dev_start(port);
}

/* Stops a port and removes its device. Nothing may use its queues. */
void hd_close(uint16_t port)
{
    struct rte_eth_dev_info info;
    int rc = rte_eth_dev_info_get(port, &info);
    rte_eth_dev_stop(port);
    rte_eth_dev_close(port);
    if (rc == 0)
        rte_dev_remove(info.device);
}

void hd_free_pool(struct rte_mempool *pool)
{
    rte_mempool_free(pool);
}

uint16_t hd_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **frames, uint16_t max)
{
    return rte_eth_rx_burst(port, queue, frames, max);
}

uint16_t hd_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **frames, uint16_t count)
{
    return rte_eth_tx_burst(port, queue, frames, count);
}

/* Returns how many frames wait; below zero if the driver cannot tell. */
int hd_rx_count(uint16_t port, uint16_t queue)
{
    return rte_eth_rx_queue_count(port, queue);
}

/* Returns a buffer for a frame of this length; NULL if there is none, or the frame is too long. */
struct rte_mbuf *hd_alloc(struct rte_mempool *pool, uint16_t length)
{
    struct rte_mbuf *frame = rte_pktmbuf_alloc(pool);
    if (frame != NULL && rte_pktmbuf_append(frame, length) == NULL) {
        rte_pktmbuf_free(frame);
        return NULL;
    }
    return frame;
}

/* Returns where a frame's bytes are, and their number: 0 if it is in several parts. */
uint8_t *hd_data(struct rte_mbuf *frame, uint16_t *length)
{
    *length = frame->nb_segs == 1 ? rte_pktmbuf_data_len(frame) : 0;
    return rte_pktmbuf_mtod(frame, uint8_t *);
}

void hd_free(struct rte_mbuf *frame)
{
    rte_pktmbuf_free(frame);
}

int hd_stats(uint16_t port, struct hd_stats *to)
{
    struct rte_eth_stats stats;
    int rc = rte_eth_stats_get(port, &stats);
    if (rc == 0)
        *to = (struct hd_stats){stats.ipackets, stats.opackets, stats.imissed,
                                stats.rx_nombuf, stats.ierrors, stats.oerrors};
    return rc;
}

/* Stores whether the link is up, and its speed in Mbit/s. */
int hd_link(uint16_t port, int *up, uint32_t *speed)
{
    struct rte_eth_link link;
    int rc = rte_eth_link_get_nowait(port, &link);
    if (rc == 0) {
        *up = link.link_status == RTE_ETH_LINK_UP;
        *speed = link.link_speed;
    }
    return rc;
}

int hd_mac(uint16_t port, uint8_t to[6])
{
    struct rte_ether_addr address;
    int rc = rte_eth_macaddr_get(port, &address);
    if (rc == 0)
        memcpy(to, address.addr_bytes, 6);
    return rc;
}

const char *hd_error(int error)
{
    return rte_strerror(error);
}
