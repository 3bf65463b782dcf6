/* fuzz_index.c - any bytes as model.safetensors.index.json: refused, or every file it names is in the
 * folder itself and every tensor is named once. */
#include "fuzz.h"

#include <string.h>

#include "formats/shard_index.h"

static void require_plain(const char *name)
{
    require(name[0] != '\0' && !strchr(name, '/') && strcmp(name, ".") && strcmp(name, ".."));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    shard_index index;
    dsmoe_error error = {0};
    dsmoe_status status = shard_index_parse(&index, (const char *)bytes, size, "fuzz", &error);
    if (status != DSMOE_OK) {
        require_error(status, &error);
        require(!index.root && !index.entries);
        return 0;
    }
    require(index.n_entries > 0);
    size_t n_files = 0;
    for (size_t i = 0; i < index.n_entries; i++) {
        const index_entry *entry = &index.entries[i];
        require_plain(entry->file_name);
        require(shard_index_names(&index, entry->tensor));
        require(i == 0 || strcmp(entry[-1].file_name, entry->file_name) <= 0);
        n_files += shard_index_is_last_of_file(&index, i);
    }
    require(n_files >= 1 && n_files <= index.n_entries);
    require(shard_index_is_last_of_file(&index, index.n_entries - 1));
    require(!shard_index_has_size(&index, 1) || !shard_index_has_size(&index, 2) ||
            !index.total_size);
    shard_index_close(&index);
    return 0;
}
