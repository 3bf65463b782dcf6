/* ints.c - converts x to integers, once for all tasks. */
#include "moe/ints.h"

#include "base/threads.h"
#include "kernels/gemm_blocks.h"

enum {
    ALONE = 16384,       /* up to this many numbers, waking other threads takes longer */
    TASK_NUMBERS = 8192, /* a task is whole rows with about this many numbers */
};

unsigned ints_forms(const kernels *kn, matrix weight)
{
    return dtype_is_block(weight.type) ? 1u << kn->dtypes[weight.type].blocks->form : 0;
}

unsigned ints_forms_of_expert(const kernels *kn, const moe_expert *e)
{
    return ints_forms(kn, e->gate_proj) | ints_forms(kn, e->up_proj) | ints_forms(kn, e->down_proj);
}

size_t ints_size(unsigned forms, int64_t n_rows, int64_t k)
{
    int64_t size = 0;
    for (int form = 0; form < BLOCK_FORMS; form++)
        if (forms >> form & 1) size += n_rows * gemm_blocks_stride((block_form)form, k);
    return (size_t)size;
}

static int64_t task_rows(const struct int_item *item)
{
    return item->k < TASK_NUMBERS ? TASK_NUMBERS / item->k : 1;
}

static void int_task(void *context, int64_t task, int thread)
{
    (void)thread;
    const int_work *work = context;
    const struct int_item *item = work->items;
    while (item + 1 < work->items + work->n && task >= item[1].first_task) item++;
    int64_t first = (task - item->first_task) * task_rows(item);
    int64_t end = moe_min(item->n_rows, first + task_rows(item));
    for (int64_t i = first; i < end; i++)
        gemm_blocks_quantize(work->kernels, item->form, item->x, i, item->k, item->to);
}

int_work ints_begin(const thread_scratch *threads, int n_threads)
{
    return (int_work){.kernels = threads->gemm.kernels,
                      .n_threads = n_threads,
                      .at = threads->ints,
                      .left = threads->ints_size};
}

void ints_want(int_work *work, x_home *home, rows x, int64_t n_rows, int64_t k, matrix weight)
{
    unsigned forms = ints_forms(work->kernels, weight);
    if (forms == 0 || n_rows == 0) return;
    block_form form = work->kernels->dtypes[weight.type].blocks->form;
    size_t size = ints_size(forms, n_rows, k);
    if (home->form[form] || size > work->left) return;
    if (work->n == INTS_BATCH) ints_end(work);
    work->items[work->n++] =
        (struct int_item){.x = x, .n_rows = n_rows, .k = k, .form = form, .to = work->at};
    home->form[form] = work->at;
    work->at += size;
    work->left -= size;
}

void ints_end(int_work *work)
{
    int64_t n_tasks = 0, n_numbers = 0;
    for (int i = 0; i < work->n; i++) {
        struct int_item *item = &work->items[i];
        item->first_task = n_tasks;
        n_tasks += moe_parts(item->n_rows, task_rows(item));
        n_numbers += item->n_rows * item->k;
    }
    threads_for(n_numbers <= ALONE ? 1 : work->n_threads, n_tasks, int_task, work);
    work->n = 0;
}
