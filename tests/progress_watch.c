/* progress_watch.c - watches the progress that long work reports. */
#include "progress_watch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

bool watch_progress(void *context, double done, double total)
{
    progress_watch *w = context;
    assert_true(done >= w->done && done <= total);
    w->done = done;
    w->total = total;
    return ++w->calls != w->stop_at;
}
