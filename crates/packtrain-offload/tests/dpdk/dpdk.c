/* What DPDK makes of a packet, behind plain functions: bytes in, bytes out. Compiled when the test
 * starts, if pkg-config knows libdpdk. */
#define ALLOW_EXPERIMENTAL_API 1
#include <string.h>
#include <rte_ether.h>
#include <rte_ethdev.h>
#include <rte_gro.h>
#include <rte_gso.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_tcp.h>
#include <rte_udp.h>
#include "../../benches/offload/shim/eal.h"

#define PACKET_MAX 65520
#define SEGMENTS_MAX 2048
#define BURST_MAX RTE_GRO_MAX_BURST_ITEM_NUM

/* In the order of `Cut` on the other side. */
enum { CUT_TCP, CUT_UDP, CUT_VXLAN_TCP, CUT_GRE_TCP };

static struct rte_mempool *large, *direct, *indirect, *frames;

int po_open(void)
{
	large = rte_pktmbuf_pool_create("large", 8, 0, 0, PACKET_MAX, 0);
	direct = rte_pktmbuf_pool_create("direct", SEGMENTS_MAX, 0, 0, 256 + RTE_PKTMBUF_HEADROOM, 0);
	indirect = rte_pktmbuf_pool_create("indirect", SEGMENTS_MAX, 0, 0, 0, 0);
	frames = rte_pktmbuf_pool_create("frames", 2 * BURST_MAX, 0, 0, 2048 + RTE_PKTMBUF_HEADROOM, 0);
	return large && direct && indirect && frames ? 0 : -1;
}

/* ---- Checksums ---- */

uint16_t po_raw_cksum(const uint8_t *bytes, size_t count)
{
	return rte_raw_cksum(bytes, count);
}

/* The final checksum of TCP or UDP behind an IP header without options; the field is 0. */
uint16_t po_l4_cksum(const uint8_t *ip, int ipv6)
{
	if (ipv6)
		return rte_ipv6_udptcp_cksum((const void *)ip, ip + sizeof(struct rte_ipv6_hdr));
	return rte_ipv4_udptcp_cksum((const void *)ip, ip + sizeof(struct rte_ipv4_hdr));
}

int po_l4_is_right(const uint8_t *ip, int ipv6)
{
	if (ipv6)
		return !rte_ipv6_udptcp_cksum_verify((const void *)ip,
						     ip + sizeof(struct rte_ipv6_hdr));
	return !rte_ipv4_udptcp_cksum_verify((const void *)ip, ip + sizeof(struct rte_ipv4_hdr));
}

/* ---- GSO ---- */

static void set_ip_cksum(uint8_t *header)
{
	struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)header;

	ip->hdr_checksum = 0;
	ip->hdr_checksum = rte_ipv4_cksum(ip);
}

/* rte_gso_segment() leaves checksums to its caller. */
static void set_cksums(uint8_t *segment, const struct rte_mbuf *packet, int cut)
{
	size_t inner = packet->l2_len;

	if (cut == CUT_VXLAN_TCP || cut == CUT_GRE_TCP)
		inner += packet->outer_l2_len + packet->outer_l3_len;
	set_ip_cksum(segment + inner);
	if (cut != CUT_UDP) {
		struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)(segment + inner);
		struct rte_tcp_hdr *tcp = (struct rte_tcp_hdr *)((uint8_t *)ip + packet->l3_len);

		tcp->cksum = 0;
		tcp->cksum = rte_ipv4_udptcp_cksum(ip, tcp);
	}
	if (cut == CUT_VXLAN_TCP || cut == CUT_GRE_TCP)
		set_ip_cksum(segment + packet->outer_l2_len);
	if (cut == CUT_VXLAN_TCP) {
		struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)(segment + packet->outer_l2_len);
		struct rte_udp_hdr *udp =
			(struct rte_udp_hdr *)((uint8_t *)ip + packet->outer_l3_len);

		/* 0 is no checksum, and stays that. */
		if (udp->dgram_cksum) {
			udp->dgram_cksum = 0;
			udp->dgram_cksum = rte_ipv4_udptcp_cksum(ip, udp);
		}
	}
}

/* Lengths of headers, as an mbuf has them. */
struct headers {
	uint32_t outer_l2, outer_l3, l2, l3, l4;
};

static uint64_t flags_of(int cut)
{
	switch (cut) {
	case CUT_TCP:
		return RTE_MBUF_F_TX_TCP_SEG | RTE_MBUF_F_TX_IPV4;
	case CUT_UDP:
		return RTE_MBUF_F_TX_UDP_SEG | RTE_MBUF_F_TX_IPV4;
	case CUT_VXLAN_TCP:
		return RTE_MBUF_F_TX_TCP_SEG | RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_OUTER_IPV4 |
		       RTE_MBUF_F_TX_TUNNEL_VXLAN;
	default:
		return RTE_MBUF_F_TX_TCP_SEG | RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_OUTER_IPV4 |
		       RTE_MBUF_F_TX_TUNNEL_GRE;
	}
}

/* Segments of at most `size` bytes, headers included, one after the other in `out`. Returns how many
 * there are, 0 if the packet was left as it is. */
int po_segment(const uint8_t *bytes, size_t count, const struct headers *headers, int cut,
	       unsigned size, int fixed_id, uint8_t *out, size_t room, uint32_t *lengths,
	       unsigned lengths_max)
{
	struct rte_gso_ctx context = {
		.direct_pool = direct,
		.indirect_pool = indirect,
		.flag = fixed_id ? RTE_GSO_FLAG_IPID_FIXED : 0,
		.gso_types = RTE_ETH_TX_OFFLOAD_TCP_TSO | RTE_ETH_TX_OFFLOAD_UDP_TSO |
			     RTE_ETH_TX_OFFLOAD_VXLAN_TNL_TSO | RTE_ETH_TX_OFFLOAD_GRE_TNL_TSO,
		.gso_size = size,
	};
	static struct rte_mbuf *segments[SEGMENTS_MAX];
	struct rte_mbuf *packet = count <= PACKET_MAX ? rte_pktmbuf_alloc(large) : NULL;
	int made;

	if (!packet)
		return -1;
	/* 64 KB and the headroom are more than a length of 16 bits can say. */
	packet->data_off = 0;
	memcpy(rte_pktmbuf_mtod(packet, uint8_t *), bytes, count);
	packet->data_len = packet->pkt_len = count;
	packet->outer_l2_len = headers->outer_l2;
	packet->outer_l3_len = headers->outer_l3;
	packet->l2_len = headers->l2;
	packet->l3_len = headers->l3;
	packet->l4_len = headers->l4;
	packet->ol_flags = flags_of(cut);
	made = rte_gso_segment(packet, &context, segments, SEGMENTS_MAX);
	for (int i = 0; i < made; i++) {
		uint32_t length = segments[i]->pkt_len;

		if ((unsigned)i < lengths_max && length <= room) {
			const void *piece = rte_pktmbuf_read(segments[i], 0, length, out);

			if (piece != out)
				memcpy(out, piece, length);
			set_cksums(out, packet, cut);
			lengths[i] = length;
			out += length;
			room -= length;
		} else {
			room = 0;
		}
		rte_pktmbuf_free(segments[i]);
	}
	rte_pktmbuf_free(packet);
	return made > 0 && ((unsigned)made > lengths_max || !room) ? -2 : made;
}

/* ---- GRO ---- */

/* One burst of TCP over IPv4, packets one after the other in `bytes`, merged ones in `out`. */
int po_merge(const uint8_t *bytes, const uint32_t *lengths, unsigned count, unsigned l2,
	     uint8_t *out, size_t room, uint32_t *out_lengths)
{
	struct rte_gro_param param = { .gro_types = RTE_GRO_TCP_IPV4,
				       .max_flow_num = BURST_MAX,
				       .max_item_per_flow = BURST_MAX };
	struct rte_mbuf *burst[BURST_MAX];
	int given;

	if (count > BURST_MAX)
		return -1;
	for (unsigned i = 0; i < count; i++) {
		struct rte_mbuf *mbuf = rte_pktmbuf_alloc(frames);
		uint8_t *data;
		struct rte_ipv4_hdr *ip;

		if (!mbuf || lengths[i] > 2048)
			return -1;
		data = rte_pktmbuf_mtod(mbuf, uint8_t *);
		memcpy(data, bytes, lengths[i]);
		bytes += lengths[i];
		ip = (struct rte_ipv4_hdr *)(data + l2);
		mbuf->data_len = mbuf->pkt_len = lengths[i];
		mbuf->l2_len = l2;
		mbuf->l3_len = rte_ipv4_hdr_len(ip);
		mbuf->l4_len = (data[l2 + mbuf->l3_len + 12] >> 4) * 4;
		mbuf->packet_type = RTE_PTYPE_L2_ETHER | RTE_PTYPE_L3_IPV4 | RTE_PTYPE_L4_TCP;
		burst[i] = mbuf;
	}
	given = rte_gro_reassemble_burst(burst, count, &param);
	for (int i = 0; i < given; i++) {
		uint32_t length = burst[i]->pkt_len;

		if (length <= room) {
			const void *piece = rte_pktmbuf_read(burst[i], 0, length, out);

			if (piece != out)
				memcpy(out, piece, length);
			out_lengths[i] = length;
			out += length;
			room -= length;
		} else {
			given = -2;
			break;
		}
		rte_pktmbuf_free(burst[i]);
	}
	return given;
}
