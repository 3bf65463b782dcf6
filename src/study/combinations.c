/* combinations.c - how many sets of experts a token can be sent to: exact binomial coefficients.
 *
 * C(n, k) = product over i = 1..k of (n - k + i) / i. After step i the product is C(n - k + i, i),
 * a whole number, so it is enough to multiply and divide one big number by single words. */
#include "dsmoe.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

/* A natural number in base 2^32, least significant limb first; no limbs mean zero. */
typedef struct bignum {
    uint32_t *limbs;
    size_t count, capacity;
} bignum;

static void bignum_append(bignum *number, uint32_t limb)
{
    assert(number->count < number->capacity);
    number->limbs[number->count++] = limb;
}

static void bignum_multiply(bignum *number, uint64_t factor)
{
    uint64_t carry = 0;
    for (size_t i = 0; i < number->count; i++) {
        unsigned __int128 product = (unsigned __int128)number->limbs[i] * factor + carry;
        number->limbs[i] = (uint32_t)product;
        carry = (uint64_t)(product >> 32);
    }
    for (; carry; carry >>= 32) bignum_append(number, (uint32_t)carry);
}

/* Divides in place and returns the remainder. */
static uint32_t bignum_divide(bignum *number, uint32_t divisor)
{
    uint64_t remainder = 0;
    for (size_t i = number->count; i-- > 0;) {
        uint64_t dividend = remainder << 32 | number->limbs[i];
        number->limbs[i] = (uint32_t)(dividend / divisor);
        remainder = dividend % divisor;
    }
    while (number->count && number->limbs[number->count - 1] == 0) number->count--;
    return (uint32_t)remainder;
}

/* Returns the decimal digits in a string to free(), or NULL if out of memory. Leaves the number at zero. */
static char *bignum_to_decimal(bignum *number)
{
    enum { GROUP = 9, BASE = 1000000000 };        /* the digits that one limb can hold */
    size_t size = number->count * 10 + GROUP + 1; /* a limb is less than 9.64 digits */
    char *digits = malloc(size);
    if (!digits) return NULL;
    size_t start = size - 1;
    digits[start] = '\0';
    do {
        uint32_t group = bignum_divide(number, BASE);
        for (int i = 0; i < GROUP; i++, group /= 10) digits[--start] = (char)('0' + group % 10);
    } while (number->count);
    while (digits[start] == '0' && digits[start + 1]) start++;
    memmove(digits, digits + start, size - start);
    return digits;
}

/* An upper bound for log2 C(n, k), k <= n / 2, from C(n, k) <= (e n / k)^k and <= 2^n. */
static double combinations_bits(int64_t n, int64_t k)
{
    if (k == 0) return 1;
    return fmin((double)n, (double)k * log2(2.7182818284590453 * (double)n / (double)k)) + 1;
}

/* C(n, k) for 0 <= k <= n / 2, or NULL if out of memory. */
static char *combinations_count(int64_t n, int64_t k)
{
    /* Before the division of step i the product is i times too large, which takes one more limb. */
    bignum number = {.capacity = (size_t)(combinations_bits(n, k) / 32) + 3};
    number.limbs = malloc(number.capacity * sizeof *number.limbs);
    if (!number.limbs) return NULL;
    bignum_append(&number, 1);
    for (int64_t i = 1; i <= k; i++) {
        bignum_multiply(&number, (uint64_t)(n - k + i));
        bignum_divide(&number, (uint32_t)i);
    }
    char *digits = bignum_to_decimal(&number);
    free(number.limbs);
    return digits;
}

dsmoe_status dsmoe_combinations(int64_t n, int64_t k, char **digits, dsmoe_error *error)
{
    *digits = NULL;
    if (n < 0 || k < 0)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "C(%" PRId64 ", %" PRId64 "): a negative number of experts", n, k);
    if (k > n) {
        *digits = strdup("0");
    } else {
        if (k > n - k) k = n - k;
        /* k steps over all limbs: this bound, about a second of work, also bounds the memory and
         * keeps every divisor within one limb. */
        const double max_work = 0x1p28;
        double bits = combinations_bits(n, k);
        if ((double)k * (bits / 32 + 1) > max_work)
            return status_fail(error, DSMOE_ERROR_ARGUMENT,
                               "C(%" PRId64 ", %" PRId64 ") is too large to be written out: up to"
                               " %.0f digits",
                               n, k, bits * 0.30103);
        *digits = combinations_count(n, k);
    }
    return *digits ? DSMOE_OK : status_fail(error, DSMOE_ERROR_MEMORY, "out of memory");
}
