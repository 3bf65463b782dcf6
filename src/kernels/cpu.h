/* cpu.h - what a set of kernels needs of the processor. */
#ifndef DSMOE_KERNELS_CPU_H
#define DSMOE_KERNELS_CPU_H

/* Features that not every processor has. */
enum {
    CPU_AVX2 = 1,
    CPU_FMA = 2,
    CPU_F16C = 4,
    CPU_AVX512 = 8
}; /* CPU_AVX512 is F with BW, DQ, VL and VNNI */
/* How many of the sets, weakest first, a processor with these features runs. */
int kernels_with(unsigned features);

#endif
