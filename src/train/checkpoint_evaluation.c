/* checkpoint_evaluation.c - how well a checkpoint predicts the held-out text, in a file of its own: the
 * checkpoint is safe on the disk before it is measured, and an interrupted measurement can be repeated. */
#include <math.h>
#include <stdlib.h>

#include "formats/json.h"
#include "formats/json_write.h"
#include "formats/mapped_file.h"
#include "formats/partial_file.h"
#include "train/checkpoint.h"

enum { MAX_SIZE = 4096 };
static const char file_name[] = "evaluation.json", key[] = "held_out_loss";

static void put_loss(FILE *text, const void *loss)
{
    fprintf(text, "{\"%s\": ", key);
    if (isfinite(*(const double *)loss))
        json_write_number(text, *(const double *)loss);
    else
        fputs("null", text);
    fputs("}\n", text);
}

dsmoe_status checkpoint_put_evaluation(const char *path, double held_out_loss, dsmoe_error *error)
{
    return partial_file_write_text(path, file_name, put_loss, &held_out_loss, error);
}

bool checkpoint_get_evaluation(const char *path, double *held_out_loss)
{
    char *file = mapped_file_path(path, file_name);
    json_node *root = NULL;
    bool found = file && json_node_read(file, MAX_SIZE, &root, NULL) == DSMOE_OK &&
                 json_node_kind(root) == JSON_KIND_OBJECT;
    const json_node *loss = found ? json_node_member(root, key) : NULL;
    json_kind kind = loss ? json_node_kind(loss) : JSON_KIND_BOOL;
    bool is_number = kind == JSON_KIND_REAL || kind == JSON_KIND_INTEGER;
    if (is_number || kind == JSON_KIND_NULL)
        *held_out_loss = is_number ? json_node_number(loss) : (double)NAN;
    json_node_free(root);
    free(file);
    return is_number || kind == JSON_KIND_NULL;
}
