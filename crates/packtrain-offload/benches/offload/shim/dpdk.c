/* DPDK's offloads behind plain functions. Compiled for this CPU when the bench starts, if
 * pkg-config knows libdpdk; rte_gro and rte_gso themselves are in the package's prebuilt libraries,
 * which are not compiled for this CPU. The clock is on the other side: what a peer must not be charged with
 * (making packets, freeing what came out) is in functions of its own. */
#define ALLOW_EXPERIMENTAL_API 1
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <rte_ether.h>
#include <rte_ethdev.h>
#include <rte_gro.h>
#include <rte_gso.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_tcp.h>
#include "eal.h"

#define L2 14
#define L3 20
#define L4 32
#define HEADERS (L2 + L3 + L4)
#define BURST_MAX 64
#define SEGMENTS_MAX 128
#define SLOTS 4

uint64_t pt_raw_cksum(const uint8_t *block, size_t stride, size_t bytes, size_t count,
		      size_t passes)
{
	uint64_t sink = 0;

	__asm__ volatile("" : "+r"(bytes), "+r"(stride));
	for (size_t pass = 0; pass < passes; pass++) {
		__asm__ volatile("" : "+r"(block)::"memory");
		for (size_t i = 0; i < count; i++)
			sink += rte_raw_cksum(block + i * stride, bytes);
	}
	return sink;
}

/* ---- GRO ---- */

static struct rte_mempool *pool;
static struct rte_mbuf **loaded, **out;
static unsigned loaded_count, received, out_count, frames;
static size_t total_bytes;
static void *held;

void pt_gro_close(void)
{
	if (held)
		rte_gro_ctx_destroy(held);
	held = NULL;
	rte_mempool_free(pool);
	pool = NULL;
	free(loaded);
	free(out);
	loaded = out = NULL;
}

/* `count` mbufs with this payload in place. With `flows` they are held in a context for that many
 * flows of `items` packets, else each burst is on its own. */
int pt_gro_open(unsigned count, const uint8_t *payload, size_t bytes, unsigned flows,
		unsigned items)
{
	struct rte_gro_param param = { .gro_types = RTE_GRO_TCP_IPV4,
				       .max_flow_num = flows,
				       .max_item_per_flow = items };

	/* More than are needed, since some wait in the pool's cache. */
	count += 512;
	pool = rte_pktmbuf_pool_create("gro", count, 256, 0, 2048 + RTE_PKTMBUF_HEADROOM, 0);
	/* What comes out is at most what went in. */
	loaded = calloc(count, sizeof(*loaded));
	out = calloc(count + 65536, sizeof(*out));
	if (!pool || !loaded || !out)
		return -1;
	frames = count;
	total_bytes = HEADERS + bytes;
	for (unsigned i = 0; i < count; i++) {
		loaded[i] = rte_pktmbuf_alloc(pool);
		if (!loaded[i])
			return -1;
		memcpy(rte_pktmbuf_mtod_offset(loaded[i], uint8_t *, HEADERS), payload, bytes);
	}
	for (unsigned i = 0; i < count; i++)
		rte_pktmbuf_free(loaded[i]);
	loaded_count = received = out_count = 0;
	if (flows) {
		held = rte_gro_ctx_create(&param);
		if (!held)
			return -1;
	}
	return 0;
}

int pt_gro_load(const uint8_t *headers)
{
	struct rte_mbuf *mbuf = loaded_count < frames ? rte_pktmbuf_alloc(pool) : NULL;

	if (!mbuf)
		return -1;
	memcpy(rte_pktmbuf_mtod(mbuf, uint8_t *), headers, HEADERS);
	mbuf->data_len = total_bytes;
	mbuf->pkt_len = total_bytes;
	mbuf->l2_len = L2;
	mbuf->l3_len = L3;
	mbuf->l4_len = L4;
	mbuf->packet_type = RTE_PTYPE_L2_ETHER | RTE_PTYPE_L3_IPV4 | RTE_PTYPE_L4_TCP;
	mbuf->ol_flags = 0;
	loaded[loaded_count++] = mbuf;
	return 0;
}

static int is_right(struct rte_mbuf *mbuf)
{
	struct rte_ipv4_hdr *ip = rte_pktmbuf_mtod_offset(mbuf, struct rte_ipv4_hdr *, L2);

	/* A header with its checksum sums up to 0xffff, of which this gives the complement. */
	return rte_ipv4_cksum(ip) == 0 && rte_ipv4_udptcp_cksum_verify(ip, ip + 1) == 0;
}

/* One burst; says how many packets were bad. */
int pt_gro_receive(unsigned count, int verify)
{
	struct rte_gro_param param = { .gro_types = RTE_GRO_TCP_IPV4,
				       .max_flow_num = BURST_MAX,
				       .max_item_per_flow = BURST_MAX };
	struct rte_mbuf **burst = loaded + received;
	int bad = 0;
	unsigned given;

	received += count;
	if (verify)
		for (unsigned i = 0; i < count; i++)
			bad += !is_right(burst[i]);
	given = held ? rte_gro_reassemble(burst, count, held) :
		       rte_gro_reassemble_burst(burst, count, &param);
	/* What is given out is at the start of the burst. */
	memcpy(out + out_count, burst, given * sizeof(*out));
	out_count += given;
	return bad;
}

void pt_gro_flush(void)
{
	if (!held)
		return;
	do
		out_count += rte_gro_timeout_flush(held, 0, RTE_GRO_TCP_IPV4, out + out_count,
						   UINT16_MAX);
	while (rte_gro_get_pkt_count(held));
}

unsigned pt_gro_collect(void)
{
	unsigned given = out_count;

	for (unsigned i = 0; i < given; i++)
		rte_pktmbuf_free(out[i]);
	out_count = received = loaded_count = 0;
	return given;
}

/* ---- GSO ---- */

static struct rte_mempool *large, *direct, *indirect, *linear;
static struct rte_mbuf *packets[SLOTS], *segments[SEGMENTS_MAX], *copies[SEGMENTS_MAX];
static unsigned segment_count, copy_count;

void pt_gso_close(void)
{
	for (unsigned i = 0; i < SLOTS; i++)
		rte_pktmbuf_free(packets[i]);
	memset(packets, 0, sizeof(packets));
	rte_mempool_free(large);
	rte_mempool_free(direct);
	rte_mempool_free(indirect);
	rte_mempool_free(linear);
	large = direct = indirect = linear = NULL;
}

int pt_gso_open(void)
{
	large = rte_pktmbuf_pool_create("large", 64, 0, 0, 65520, 0);
	direct = rte_pktmbuf_pool_create("direct", 4096, 256, 0, 256 + RTE_PKTMBUF_HEADROOM, 0);
	indirect = rte_pktmbuf_pool_create("indirect", 4096, 256, 0, 0, 0);
	linear = rte_pktmbuf_pool_create("linear", 4096, 256, 0, 2048 + RTE_PKTMBUF_HEADROOM, 0);
	return large && direct && indirect && linear ? 0 : -1;
}

int pt_gso_load(unsigned slot, const uint8_t *packet, size_t bytes)
{
	struct rte_mbuf *mbuf;

	if (slot >= SLOTS)
		return -1;
	rte_pktmbuf_free(packets[slot]);
	packets[slot] = mbuf = rte_pktmbuf_alloc(large);
	if (!mbuf)
		return -1;
	/* 64 KB and the headroom are more than a length of 16 bits can say. */
	mbuf->data_off = 0;
	memcpy(rte_pktmbuf_mtod(mbuf, uint8_t *), packet, bytes);
	mbuf->data_len = bytes;
	mbuf->pkt_len = bytes;
	mbuf->l2_len = L2;
	mbuf->l3_len = L3;
	mbuf->l4_len = L4;
	return 0;
}

/* With `all`, checksums are computed and segments copied into one piece each, as our side does
 * where it copies. */
int pt_gso_cut(unsigned slot, unsigned mss, int all)
{
	struct rte_gso_ctx context = { .direct_pool = direct,
				       .indirect_pool = indirect,
				       .gso_types = RTE_ETH_TX_OFFLOAD_TCP_TSO,
				       .gso_size = HEADERS + mss };
	struct rte_mbuf *packet = packets[slot];
	int count;

	packet->ol_flags = RTE_MBUF_F_TX_TCP_SEG | RTE_MBUF_F_TX_IPV4;
	count = rte_gso_segment(packet, &context, segments, SEGMENTS_MAX);
	if (count <= 0)
		return count;
	segment_count = count;
	for (int i = 0; all && i < count; i++) {
		struct rte_mbuf *copy = rte_pktmbuf_copy(segments[i], linear, 0, UINT32_MAX);
		struct rte_ipv4_hdr *ip;
		struct rte_tcp_hdr *tcp;

		if (!copy)
			return -1;
		copies[copy_count++] = copy;
		ip = rte_pktmbuf_mtod_offset(copy, struct rte_ipv4_hdr *, L2);
		tcp = (struct rte_tcp_hdr *)(ip + 1);
		ip->hdr_checksum = 0;
		ip->hdr_checksum = rte_ipv4_cksum(ip);
		tcp->cksum = 0;
		tcp->cksum = rte_ipv4_udptcp_cksum(ip, tcp);
	}
	return count;
}

void pt_gso_clear(void)
{
	for (unsigned i = 0; i < segment_count; i++)
		rte_pktmbuf_free(segments[i]);
	for (unsigned i = 0; i < copy_count; i++)
		rte_pktmbuf_free(copies[i]);
	segment_count = copy_count = 0;
}
