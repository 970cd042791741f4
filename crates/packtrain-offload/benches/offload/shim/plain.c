/* Checksums and sorts in C: what packtrain is compared with beside other projects. Compiled for
 * this CPU when the bench starts. Each function has its loop on this side, so that calls from Rust
 * are no part of what is timed. */
#include <stdint.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

static inline uint16_t fold(uint64_t sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static inline uint64_t add_around(uint64_t a, uint64_t b)
{
	a += b;
	return a + (a < b);
}

static inline uint64_t tail(const uint8_t *at, size_t left, uint64_t sum)
{
	while (left >= 8) {
		uint64_t word;
		memcpy(&word, at, 8);
		sum = add_around(sum, word);
		at += 8;
		left -= 8;
	}
	if (left) {
		uint64_t word = 0;
		memcpy(&word, at, left);
		sum = add_around(sum, word);
	}
	return sum;
}

/* 64-bit additions with carry, one chain: what kernels did for long; a function, as there. */
static __attribute__((noinline)) uint16_t sum_adc(const uint8_t *at, size_t left)
{
	uint64_t sum = 0;
#ifdef __x86_64__
	for (; left >= 64; at += 64, left -= 64)
		__asm__("addq 0(%[at]), %[sum]\n\t"
			"adcq 8(%[at]), %[sum]\n\t"
			"adcq 16(%[at]), %[sum]\n\t"
			"adcq 24(%[at]), %[sum]\n\t"
			"adcq 32(%[at]), %[sum]\n\t"
			"adcq 40(%[at]), %[sum]\n\t"
			"adcq 48(%[at]), %[sum]\n\t"
			"adcq 56(%[at]), %[sum]\n\t"
			"adcq $0, %[sum]"
			: [sum] "+r"(sum)
			: [at] "r"(at), "m"(*(const char(*)[64])at)
			: "cc");
#endif
	return fold(tail(at, left, sum));
}

#ifdef __AVX512BW__
/* Which bytes of a vector are there when so many are left: a rest in one load, and no loop over
 * its words. */
static inline __mmask64 first(size_t left)
{
	return left < 64 ? (1ull << left) - 1 : ~0ull;
}
#endif

/* The halves of 64-bit words added up in vectors, two at a time; or what the compiler makes of it. */
static inline uint16_t sum_wide(const uint8_t *at, size_t left)
{
#ifdef __AVX512BW__
	const __m512i low = _mm512_set1_epi64(0xffffffff);
	__m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
	for (; left >= 128; at += 128, left -= 128) {
		__m512i x = _mm512_loadu_si512(at), y = _mm512_loadu_si512(at + 64);
		a = _mm512_add_epi64(a, _mm512_and_si512(x, low));
		b = _mm512_add_epi64(b, _mm512_srli_epi64(x, 32));
		c = _mm512_add_epi64(c, _mm512_and_si512(y, low));
		d = _mm512_add_epi64(d, _mm512_srli_epi64(y, 32));
	}
	if (left) {
		__m512i x = _mm512_maskz_loadu_epi8(first(left), at);
		a = _mm512_add_epi64(a, _mm512_and_si512(x, low));
		b = _mm512_add_epi64(b, _mm512_srli_epi64(x, 32));
	}
	if (left > 64) {
		__m512i y = _mm512_maskz_loadu_epi8(first(left - 64), at + 64);
		c = _mm512_add_epi64(c, _mm512_and_si512(y, low));
		d = _mm512_add_epi64(d, _mm512_srli_epi64(y, 32));
	}
	a = _mm512_add_epi64(_mm512_add_epi64(a, b), _mm512_add_epi64(c, d));
	return fold(_mm512_reduce_add_epi64(a));
#else
	uint64_t sum = 0;
	for (; left >= 4; at += 4, left -= 4) {
		uint32_t word;
		memcpy(&word, at, 4);
		sum += word;
	}
	return fold(tail(at, left, sum));
#endif
}

/* Copies and sums what it has in a register. */
static inline uint16_t copy_sum_once(uint8_t *to, const uint8_t *at, size_t left)
{
#ifdef __AVX512BW__
	const __m512i low = _mm512_set1_epi64(0xffffffff);
	__m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
	for (; left >= 128; at += 128, to += 128, left -= 128) {
		__m512i x = _mm512_loadu_si512(at), y = _mm512_loadu_si512(at + 64);
		_mm512_storeu_si512(to, x);
		_mm512_storeu_si512(to + 64, y);
		a = _mm512_add_epi64(a, _mm512_and_si512(x, low));
		b = _mm512_add_epi64(b, _mm512_srli_epi64(x, 32));
		c = _mm512_add_epi64(c, _mm512_and_si512(y, low));
		d = _mm512_add_epi64(d, _mm512_srli_epi64(y, 32));
	}
	if (left) {
		__m512i x = _mm512_maskz_loadu_epi8(first(left), at);
		_mm512_mask_storeu_epi8(to, first(left), x);
		a = _mm512_add_epi64(a, _mm512_and_si512(x, low));
		b = _mm512_add_epi64(b, _mm512_srli_epi64(x, 32));
	}
	if (left > 64) {
		__m512i y = _mm512_maskz_loadu_epi8(first(left - 64), at + 64);
		_mm512_mask_storeu_epi8(to + 64, first(left - 64), y);
		c = _mm512_add_epi64(c, _mm512_and_si512(y, low));
		d = _mm512_add_epi64(d, _mm512_srli_epi64(y, 32));
	}
	a = _mm512_add_epi64(_mm512_add_epi64(a, b), _mm512_add_epi64(c, d));
	return fold(_mm512_reduce_add_epi64(a));
#else
	memcpy(to, at, left);
	return sum_wide(to, left);
#endif
}

static inline uint16_t copy_then_sum(uint8_t *to, const uint8_t *at, size_t bytes)
{
	memcpy(to, at, bytes);
	__asm__ volatile("" ::: "memory");
	return sum_wide(to, bytes);
}

/* The least that can be done with data: what memory allows. Nothing is made of what was read, but
 * the compiler cannot know that: to bring it together takes longer than to read little. */
static inline uint16_t read_only(const uint8_t *at, size_t left)
{
#ifdef __AVX512BW__
	for (; left >= 128; at += 128, left -= 128) {
		__m512i x = _mm512_loadu_si512(at), y = _mm512_loadu_si512(at + 64);
		__asm__ volatile("" : : "v"(x), "v"(y));
	}
	if (left) {
		__m512i x = _mm512_maskz_loadu_epi8(first(left), at);
		__asm__ volatile("" : : "v"(x));
	}
	if (left > 64) {
		__m512i y = _mm512_maskz_loadu_epi8(first(left - 64), at + 64);
		__asm__ volatile("" : : "v"(y));
	}
	return 0;
#else
	uint64_t all = 0;
	for (; left >= 8; at += 8, left -= 8) {
		uint64_t word;
		memcpy(&word, at, 8);
		all ^= word;
	}
	return tail(at, left, all);
#endif
}

/* The same for copying, without a call of `memcpy()`. */
static inline uint16_t copy_only(uint8_t *to, const uint8_t *at, size_t left)
{
#ifdef __AVX512BW__
	for (; left >= 128; at += 128, to += 128, left -= 128) {
		__m512i x = _mm512_loadu_si512(at), y = _mm512_loadu_si512(at + 64);
		_mm512_storeu_si512(to, x);
		_mm512_storeu_si512(to + 64, y);
	}
	if (left) {
		__m512i x = _mm512_maskz_loadu_epi8(first(left), at);
		_mm512_mask_storeu_epi8(to, first(left), x);
	}
	if (left > 64) {
		__m512i y = _mm512_maskz_loadu_epi8(first(left - 64), at + 64);
		_mm512_mask_storeu_epi8(to + 64, first(left - 64), y);
	}
#else
	memcpy(to, at, left);
#endif
	__asm__ volatile("" ::: "memory");
	return 0;
}

/* Keeps the compiler from knowing the length. */
#define LOOP(CALL)                                                        \
	uint64_t sink = 0;                                                \
	__asm__ volatile("" : "+r"(bytes), "+r"(stride));                 \
	for (size_t pass = 0; pass < passes; pass++) {                    \
		__asm__ volatile("" : "+r"(block)::"memory");             \
		for (size_t i = 0; i < count; i++) {                      \
			const uint8_t *piece = block + i * stride;        \
			sink += CALL;                                     \
		}                                                         \
	}                                                                 \
	return sink

uint64_t pt_sum_adc(const uint8_t *block, size_t stride, size_t bytes, size_t count, size_t passes)
{
	LOOP(sum_adc(piece, bytes));
}

uint64_t pt_sum_wide(const uint8_t *block, size_t stride, size_t bytes, size_t count,
		     size_t passes)
{
	LOOP(sum_wide(piece, bytes));
}

uint64_t pt_read(const uint8_t *block, size_t stride, size_t bytes, size_t count, size_t passes)
{
	LOOP(read_only(piece, bytes));
}

uint64_t pt_copy(uint8_t *to, const uint8_t *block, size_t stride, size_t bytes, size_t count,
		 size_t passes)
{
	LOOP(copy_only(to, piece, bytes));
}

uint64_t pt_copy_then_sum(uint8_t *to, const uint8_t *block, size_t stride, size_t bytes,
			  size_t count, size_t passes)
{
	LOOP(copy_then_sum(to, piece, bytes));
}

uint64_t pt_copy_sum_once(uint8_t *to, const uint8_t *block, size_t stride, size_t bytes,
			  size_t count, size_t passes)
{
	LOOP(copy_sum_once(to, piece, bytes));
}

struct item {
	uint64_t key, index;
};

static void insertion(struct item *items, size_t n)
{
	for (size_t i = 1; i < n; i++) {
		struct item item = items[i];
		size_t at = i;

		for (; at > 0 && items[at - 1].key > item.key; at--)
			items[at] = items[at - 1];
		items[at] = item;
	}
}

/* The method of tcp_lro_sort() in FreeBSD: partition by the highest bit in which keys differ, the
 * halves in turn; short runs by insertion. */
static void partition(struct item *items, size_t n)
{
	while (n > 12) {
		uint64_t differ = 0, bit;
		size_t low = 0;

		/* From the first one, so that vectors are loaded from the beginning of a line. */
		for (size_t i = 0; i < n; i++)
			differ |= items[0].key ^ items[i].key;
		if (!differ)
			return;
		bit = 1ull << (63 - __builtin_clzll(differ));
		for (size_t i = 0; i < n; i++) {
			struct item item = items[i];

			if (item.key & bit)
				continue;
			items[i] = items[low];
			items[low++] = item;
		}
		partition(items, low);
		items += low;
		n -= low;
	}
	insertion(items, n);
}

void pt_bits(struct item *items, size_t n)
{
	partition(items, n);
}
