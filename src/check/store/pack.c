/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The two heads of a pack: each can be made from the other. */
#include "check/checking.h"

#include "base/io.h"
#include <errno.h>
#include <string.h>

static void bad_head(struct wb_checking *checking, const char *path, uint64_t from, const uint8_t *head, size_t length)
{
    struct wb_check_where where = {path, NULL, from, from + length};
    const char *text =
        from > 0 ? "the second head of the packed data is damaged" : "the head of the packed data is damaged";

    if (wb_check_mends(checking, false))
        wb_check_tell_mended(checking, wb_mend_file(checking, path, from, head, length), "damaged-pack", where,
                             "rewritten from its copy", "%s", text);
    else
        wb_check_tell(checking, WB_CHECK_WRONG, "damaged-pack", where, "can be rewritten from its copy", "%s", text);
}

int wb_check_pack(struct wb_checking *checking, const char *path, const struct wb_log_bytes *bytes)
{
    uint8_t made[WB_PACK_END_SIZE], there[WB_PACK_END_SIZE];
    uint64_t end = wb_log_bytes_packed(bytes);
    int r;

    if (!bytes->map)
        return 0;
    wb_pack_encode_end(&bytes->map->head, made);
    if (bytes->second) {
        bad_head(checking, path, 0, made, WB_PACK_HEAD_SIZE);
        return 0;
    }
    r = wb_pread_exact(bytes->fd, there, sizeof(there), end - sizeof(there));
    if (r < 0 && r != -ENODATA)
        return r;
    if (r < 0 || memcmp(there, made, sizeof(made)) != 0)
        bad_head(checking, path, end - sizeof(made), made, sizeof(made));
    return 0;
}
