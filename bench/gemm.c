/* gemm.c - compares the products of one expert on one thread: our kernels, with weights in float32 and
 * in bfloat16, with OpenBLAS and BLIS.
 *
 *   cmake --build build --target bench_gemm && build/bench_gemm
 *
 * y[m, 1408] = x[m, 2048] · wᵀ, the shape of gate_proj and up_proj in the 16B model's layer, over
 * several matrices in turn, so that weights come from memory as they do in a model. The peers are
 * opened at run time if they are installed (Debian: libopenblas0, libblis4). */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "dsmoe.h"
#include "kernels/gemm.h"

enum { HIDDEN = 2048, WIDTH = 1408, MATRICES = 12, ROUNDS = 7, MOST_ROWS = 192 };

typedef void cblas_sgemm_fn(int order, int transpose_a, int transpose_b, int m, int n, int k,
                            float alpha, const float *a, int lda, const float *b, int ldb,
                            float beta, float *c, int ldc);

typedef struct contender {
    const char *name;
    cblas_sgemm_fn *sgemm; /* NULL: our own */
    dsmoe_dtype type;      /* of the weights */
    double gflops;
} contender;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static cblas_sgemm_fn *open_peer(const char *library, const char *set_threads)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle) return NULL;
    void (*one_thread)(long) = (void (*)(long))dlsym(handle, set_threads);
    if (one_thread) one_thread(1);
    return (cblas_sgemm_fn *)dlsym(handle, "cblas_sgemm");
}

static void run(const contender *c, gemm *g, const float *x, int m, matrix w, float *y)
{
    enum { ROW_MAJOR = 101, NO = 111, YES = 112 };
    if (c->sgemm) {
        c->sgemm(ROW_MAJOR, NO, YES, m, WIDTH, HIDDEN, 1.0f, x, HIDDEN, w.data, HIDDEN, 0.0f, y,
                 WIDTH);
        return;
    }
    gemm_nt_load(g, (rows){x, HIDDEN, NULL}, m, HIDDEN);
    gemm_nt(g, w, WIDTH, y, WIDTH);
}

/* Contenders take turns in each round, and the best round of each counts. w holds all matrices
 * consecutively, in each type. */
static void compare(contender *list, int n, gemm *g, const float *x, int m, const matrix w[],
                    float *y)
{
    double flops = 2.0 * m * WIDTH * HIDDEN * MATRICES;
    for (int i = 0; i < n; i++) list[i].gflops = 0.0;
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < n; i++) {
            double start = seconds();
            for (int e = 0; e < MATRICES; e++)
                run(&list[i], g, x, m, matrix_from(w[list[i].type], (int64_t)e * WIDTH), y);
            list[i].gflops = fmax(list[i].gflops, flops / (seconds() - start) * 1e-9);
        }
}

/* The upper half of each number. */
static void to_bf16(const float *w, int64_t n, uint16_t *half)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &w[i], sizeof bits);
        half[i] = (uint16_t)(bits >> 16);
    }
}

static int find_contenders(contender list[4])
{
    int n = 0;
    list[n++] = (contender){.name = "dsmoe", .type = DSMOE_F32};
    list[n++] = (contender){.name = "bf16", .type = DSMOE_BF16};
    cblas_sgemm_fn *openblas = open_peer("libopenblas.so.0", "openblas_set_num_threads");
    cblas_sgemm_fn *blis = open_peer("libblis.so.4", "bli_thread_set_num_threads");
    if (openblas) list[n++] = (contender){.name = "OpenBLAS", .sgemm = openblas};
    if (blis) list[n++] = (contender){.name = "BLIS", .sgemm = blis};
    return n;
}

int main(void)
{
    contender list[4];
    int n = find_contenders(list);
    const kernels *kn = kernels_get();
    const int64_t n_weights = (int64_t)MATRICES * WIDTH * HIDDEN;
    float *w = memory_alloc((size_t)n_weights * sizeof *w);
    uint16_t *half = memory_alloc((size_t)n_weights * sizeof *half);
    float *x = memory_alloc(MOST_ROWS * HIDDEN * sizeof *x);
    float *y = memory_alloc(MOST_ROWS * WIDTH * sizeof *y);
    void *scratch = memory_alloc(gemm_scratch_size(kn, HIDDEN));
    if (!w || !half || !x || !y || !scratch) return fprintf(stderr, "not enough memory\n"), 1;
    for (int64_t i = 0; i < n_weights; i++) w[i] = (float)(i % 17) * 0.01f - 0.08f;
    for (int64_t i = 0; i < MOST_ROWS * HIDDEN; i++) x[i] = (float)(i % 13) * 0.1f - 0.6f;
    to_bf16(w, n_weights, half);
    const matrix weights[N_DTYPES] = {
        [DSMOE_F32] = matrix_f32(w, HIDDEN),
        [DSMOE_BF16] = {half, dtype_bytes(DSMOE_BF16, HIDDEN), DSMOE_BF16}};
    gemm g = gemm_init(kn, HIDDEN, scratch);

    dsmoe_machine machine;
    if (dsmoe_machine_measure(1, 0.3, w, (size_t)n_weights * sizeof *w, &machine, NULL) != DSMOE_OK)
        return 1;
    printf("one thread: %.1f GFLOP/s of multiply-adds, %.1f GB/s of reading\n\nrows",
           machine.fma_gflops, machine.read_gbs);
    for (int i = 0; i < n; i++) printf("%10s GFLOP/s", list[i].name);
    printf("   dsmoe, of the peak\n");
    const int rows_tried[] = {1, 2, 4, 8, 16, 24, 48, 96, 192};
    for (size_t r = 0; r < sizeof rows_tried / sizeof *rows_tried; r++) {
        compare(list, n, &g, x, rows_tried[r], weights, y);
        printf("%4d", rows_tried[r]);
        for (int i = 0; i < n; i++) printf("%18.1f", list[i].gflops);
        printf("%18.0f%%\n", 100 * list[0].gflops / machine.fma_gflops);
    }
    return 0;
}
