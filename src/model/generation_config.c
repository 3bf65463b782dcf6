/* generation_config.c - reads and checks generation_config.json. */
#include "model/generation_config.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/status.h"
#include "formats/json.h"
#include "formats/mapped_file.h"
#include "model/keys.h"

enum { MAX_SIZE = 1 << 20 }; /* bytes of the file; the released one has about a hundred */

#define KEY(name) #name, offsetof(dsmoe_generation_config, name)
static const config_key generation_keys[] = {
    {KEY(do_sample), KEY_FLAG, KEY_NULLABLE, 0, 1, false},
    {KEY(temperature), KEY_NUMBER, KEY_NULLABLE, 0, 1e6, 1},
    {KEY(top_p), KEY_NUMBER, KEY_NULLABLE, 0, 1, 1},
    {KEY(top_k), KEY_INTEGER, KEY_NULLABLE, 0, INT32_MAX, 50},
    {KEY(repetition_penalty), KEY_NUMBER, KEY_NULLABLE, 1e-6, 1e6, 1},
};
#undef KEY
enum { N_GENERATION_KEYS = sizeof generation_keys / sizeof *generation_keys };

static dsmoe_status read_root(const json_node *root, const dsmoe_config *config,
                              dsmoe_generation_config *out, dsmoe_error *error)
{
    enum { EOS_MAX = sizeof out->eos_token_id / sizeof *out->eos_token_id };
    if (json_node_kind(root) != JSON_KIND_OBJECT)
        return status_fail(error, DSMOE_ERROR_FORMAT, "the top level must be an object, not %s",
                           json_kind_name(json_node_kind(root)));
    STATUS_TRY(keys_read(generation_keys, N_GENERATION_KEYS, root, out, error));
    int n_bos;
    STATUS_TRY(keys_read_ids(root, "bos_token_id", config->vocab_size, &out->bos_token_id, 1,
                             &n_bos, error));
    STATUS_TRY(keys_read_ids(root, "eos_token_id", config->vocab_size, out->eos_token_id, EOS_MAX,
                             &out->n_eos_token_ids, error));
    if (n_bos == 0) out->bos_token_id = config->bos_token_id;
    if (out->n_eos_token_ids == 0 && config->eos_token_id >= 0) {
        out->eos_token_id[0] = config->eos_token_id;
        out->n_eos_token_ids = 1;
    }
    return DSMOE_OK;
}

/* Frees `root`. */
static dsmoe_status read_tree(json_node *root, const char *source, const dsmoe_config *config,
                              dsmoe_generation_config *out, dsmoe_error *error)
{
    dsmoe_error reason;
    dsmoe_generation_config read = {0};
    dsmoe_status status = read_root(root, config, &read, &reason);
    json_node_free(root);
    if (status != DSMOE_OK) return status_fail(error, status, "%s: %s", source, reason.message);
    *out = read;
    return DSMOE_OK;
}

dsmoe_status generation_config_parse(const char *text, size_t length, const char *source,
                                     const dsmoe_config *config, dsmoe_generation_config *out,
                                     dsmoe_error *error)
{
    json_node *root;
    STATUS_TRY(json_node_parse(text, length, source, &root, error));
    return read_tree(root, source, config, out, error);
}

dsmoe_status generation_config_read(const char *folder, const dsmoe_config *config,
                                    dsmoe_generation_config *out, dsmoe_error *error)
{
    char *path = mapped_file_path(folder, "generation_config.json");
    if (!path) return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", folder);
    struct stat info;
    dsmoe_status status;
    if (lstat(path, &info) != 0 && errno == ENOENT) {
        status = generation_config_parse("{}", 2, path, config, out, error);
    } else {
        json_node *root;
        status = json_node_read(path, MAX_SIZE, &root, error);
        if (status == DSMOE_OK) status = read_tree(root, path, config, out, error);
    }
    free(path);
    return status;
}
