/* narrow.h - float32 to the 16-bit types that checkpoints use, rounded to nearest, ties to even. An
 * infinity stays one, a NaN stays a NaN; what is too large becomes infinite. */
#ifndef DSMOE_FORMATS_NARROW_H
#define DSMOE_FORMATS_NARROW_H

#include <stdint.h>

void narrow_f16(const float *in, int64_t n, uint16_t *out);
void narrow_bf16(const float *in, int64_t n, uint16_t *out);

#endif
