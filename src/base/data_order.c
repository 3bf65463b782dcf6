/* data_order.c - a random order of 0 … n-1 as a function.
 *
 * A Feistel network is a permutation of all numbers of 2·b bits, whatever function its rounds use: in each
 * round the halves change places, and one is combined with a random number that depends on the other. If the
 * result is n or more, it goes through the network again until it is below n. That keeps it a permutation,
 * and takes less than four turns on average, since 4^b < 4·n. */
#include "base/data_order.h"

#include <assert.h>

#include "base/rng.h"

enum { ROUNDS = 6 };
static const uint64_t order_stream = 0x6f72646572000000u; /* far from the streams of tensors */

int64_t data_order_at(int64_t n, uint64_t seed, uint64_t number, int64_t index)
{
    assert(n >= 1 && n <= (int64_t)1 << 31 && index >= 0 && index < n);
    int bits = 1; /* in each half */
    while ((int64_t)1 << 2 * bits < n) bits++;
    const uint64_t mask = ((uint64_t)1 << bits) - 1;
    uint64_t x = (uint64_t)index;
    do {
        uint64_t left = x >> bits, right = x & mask;
        for (uint64_t round = 0; round < ROUNDS; round++) {
            uint64_t noise = rng_bits(seed, order_stream + number, round << 32 | right);
            uint64_t next = left ^ (noise & mask);
            left = right;
            right = next;
        }
        x = left << bits | right;
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}
