/* test_cut.c - how products are cut into tasks: every column once, and enough tasks to keep the threads
 * busy. The 16B model's products are cut by the code that cuts them in a pass. Then tasks are handed out
 * in order to the thread that is free first. The output is the table of docs/speed.md. */
#include "support.h"

#include <stdlib.h>

#include "model/linear.h"
#include "moe/experts.h"

/* ---- threads that take tasks ------------------------------------------------------------------- */

enum { MAX_THREADS = 64 };

static int64_t task_cost(const cut_product *list, cut_task t)
{
    return cut_cost(t.n_rows, t.n_columns, list[t.item].k);
}

/* The share of the time, until the last thread is done, during which threads work. */
static double busy(const cut_product *list, int64_t n, int64_t n_tasks, int n_threads)
{
    double until[MAX_THREADS] = {0}, sum = 0, last = 0;
    for (int64_t task = 0; task < n_tasks; task++) {
        int free = 0;
        for (int i = 1; i < n_threads; i++)
            if (until[i] < until[free]) free = i;
        double cost = (double)task_cost(list, cut_task_at(list, n, task));
        until[free] += cost;
        sum += cost;
        if (until[free] > last) last = until[free];
    }
    return sum / (last * n_threads);
}

/* ---- the products of a pass --------------------------------------------------------------------- */

enum { HIDDEN = 2048, WIDTH = 1408, SHARED = 2816, DENSE = 10944, VOCAB = 102400, EXPERTS = 64 };

typedef enum step { QKV, OUT, DENSE_IN, DENSE_OUT, MOE_IN, MOE_OUT, HEAD, N_STEPS } step;

static const char *const step_names[N_STEPS] = {
    "q, k, v", "o", "dense gate, up", "dense down", "experts gate, up", "experts down", "head"};

static int64_t cut_products(int64_t n_rows, int n, int64_t n_out, int n_threads, cut_product *list)
{
    product one = {
        .n_rows = n_rows, .n_in = HIDDEN, .n_out = n_out, .weight = {.type = DSMOE_Q4_K}};
    product all[3] = {one, one, one};
    return linear_cut(all, n, n_threads, list);
}

static group group_of(int64_t width, int64_t n_rows)
{
    matrix w = {.type = DSMOE_Q4_K};
    return (group){.weights = {w, w, w}, .width = width, .n_rows = n_rows};
}

/* The rows of each routed expert: six for each token, drawn at random. */
static void draw_rows(int64_t n_tokens, int64_t rows_of[EXPERTS])
{
    uint64_t state = 7;
    for (int i = 0; i < EXPERTS; i++) rows_of[i] = 0;
    for (int64_t t = 0; t < n_tokens; t++) {
        uint64_t taken = 0;
        for (int k = 0; k < 6;) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            int expert = (int)(state >> 58);
            if (taken >> expert & 1) continue;
            taken |= (uint64_t)1 << expert;
            rows_of[expert]++;
            k++;
        }
    }
}

/* Fills the list of products and returns the number of tasks. */
static int64_t cut_experts(step s, int64_t n_rows, int n_threads, experts *e)
{
    bool dense = s == DENSE_IN || s == DENSE_OUT;
    int64_t rows_of[EXPERTS];
    draw_rows(n_rows, rows_of);
    e->n_threads = n_threads;
    experts_begin(e, n_rows);
    experts_add(e, group_of(dense ? DENSE : SHARED, n_rows));
    for (int i = 0; i < EXPERTS && !dense; i++) experts_add(e, group_of(WIDTH, rows_of[i]));
    return s == DENSE_IN || s == MOE_IN ? experts_cut_hidden(e) : experts_cut_output(e);
}

static int64_t cut_step(step s, int64_t n_rows, int n_threads, experts *e, int64_t *n)
{
    *n = s == QKV ? 3 : 1;
    if (s == QKV) return cut_products(n_rows, 3, HIDDEN, n_threads, e->cuts);
    if (s == OUT) return cut_products(n_rows, 1, HIDDEN, n_threads, e->cuts);
    if (s == HEAD) return cut_products(n_rows, 1, VOCAB, n_threads, e->cuts);
    int64_t n_tasks = cut_experts(s, n_rows, n_threads, e);
    *n = e->n_groups;
    return n_tasks;
}

static const int64_t batches[] = {1, 2, 8, 64, 512};

static experts place(void **memory)
{
    arena measure = arena_over(NULL);
    experts_place(&measure, kernels_get(), HIDDEN, EXPERTS + 1, 512 * 7);
    *memory = malloc(arena_size(&measure));
    assert_non_null(*memory);
    arena a = arena_over(*memory);
    return experts_place(&a, kernels_get(), HIDDEN, EXPERTS + 1, 512 * 7);
}

/* The best share that whole octets of a single product allow: the 256 octets of o_proj cannot be divided
 * evenly over 63 threads. */
static double best_share(step s, int64_t n_rows, int n_threads)
{
    if (s != OUT && s != DENSE_OUT) return 1.0;
    int64_t pieces = (n_rows + GEMM_ROWS - 1) / GEMM_ROWS * (HIDDEN / BLOCK_OCTET);
    int64_t rounds = (pieces + n_threads - 1) / n_threads;
    return (double)pieces / (double)(rounds * n_threads);
}

/* ---- tests ---------------------------------------------------------------------------------------- */

static void test_busy(void **state)
{
    (void)state;
    static const int n_threads[] = {1, 2, 4, 8, 16, 32, 64};
    void *memory;
    experts e = place(&memory);
    for (int s = 0; s < N_STEPS; s++)
        for (size_t b = 0; b < COUNT(batches); b++) {
            print_message("| %-16s | %3d |", step_names[s], (int)batches[b]);
            for (size_t t = 0; t < COUNT(n_threads); t++) {
                int64_t n, n_tasks = cut_step((step)s, batches[b], n_threads[t], &e, &n);
                double share = busy(e.cuts, n, n_tasks, n_threads[t]);
                print_message(" %5d %3.0f %% |", (int)n_tasks, 100 * share);
                assert_true(share >= 0.9);
            }
            print_message("\n");
        }
    free(memory);
}

static void test_any_number_of_threads(void **state)
{
    (void)state;
    void *memory;
    experts e = place(&memory);
    for (int n_threads = 1; n_threads <= MAX_THREADS; n_threads++)
        for (int s = 0; s < N_STEPS; s++)
            for (size_t b = 0; b < COUNT(batches); b++) {
                int64_t n, n_tasks = cut_step((step)s, batches[b], n_threads, &e, &n);
                double share = busy(e.cuts, n, n_tasks, n_threads);
                double wanted = best_share((step)s, batches[b], n_threads);
                if (wanted > 0.9) wanted = 0.9;
                if (share < wanted - 1e-9)
                    fail_msg("%s of %d rows: %d threads are busy for %.2f of the time",
                             step_names[s], (int)batches[b], n_threads, share);
            }
    free(memory);
}

/* Every element of every product belongs to one task, and tasks begin at whole octets of columns. */
static void check_cover(const cut_product *list, int64_t n, int64_t n_tasks)
{
    int64_t task = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t area = 0;
        for (; task < n_tasks; task++) {
            cut_task t = cut_task_at(list, n, task);
            if (t.item != i) break;
            assert_true(t.column % BLOCK_OCTET == 0 && t.n_columns > 0 && t.n_rows > 0);
            assert_true(t.n_rows <= GEMM_ROWS && t.n_rows * t.n_columns <= GEMM_ROWS * CUT_WIDEST);
            assert_true(t.row + t.n_rows <= list[i].n_rows);
            assert_true(t.column + t.n_columns <= list[i].n_columns);
            area += t.n_rows * t.n_columns;
        }
        assert_int_equal(area, list[i].n_rows * list[i].n_columns);
    }
    assert_int_equal(task, n_tasks);
}

static void test_cover(void **state)
{
    (void)state;
    static const int64_t rows_tried[] = {0, 1, 5, 8, 9, 64, 252, 253, 600},
                         columns[] = {1, 7, 8, 40, 704, 1409};
    static const dsmoe_dtype types[] = {DSMOE_F32, DSMOE_Q8_0};
    for (int n_threads = 1; n_threads <= 1024; n_threads *= 4)
        for (size_t r = 0; r < COUNT(rows_tried); r++)
            for (size_t c = 0; c < COUNT(columns); c++)
                for (size_t t = 0; t < COUNT(types); t++) {
                    cut_product list[3] = {
                        {.n_rows = rows_tried[r], .n_columns = columns[c], .k = 64},
                        {.n_rows = 0, .n_columns = 100, .k = 64},
                        {.n_rows = 3, .n_columns = 50, .k = 96}};
                    for (int i = 0; i < 3; i++) list[i].type = types[t];
                    check_cover(list, 3, cut_tasks(list, 3, n_threads));
                }
}

/* With two threads tasks are long: reading weights in short streams would cost more than waiting. */
static void test_long(void **state)
{
    (void)state;
    void *memory;
    experts e = place(&memory);
    for (int s = 0; s < N_STEPS; s++)
        for (size_t b = 0; b < COUNT(batches); b++) {
            int64_t n, n_tasks = cut_step((step)s, batches[b], 2, &e, &n);
            for (int64_t i = 0; i < n_tasks; i++) {
                const cut_product *c = &e.cuts[cut_task_at(e.cuts, n, i).item];
                assert_true(c->part >= 80 || c->part >= c->n_columns);
            }
        }
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_busy),
        cmocka_unit_test(test_any_number_of_threads),
        cmocka_unit_test(test_cover),
        cmocka_unit_test(test_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
