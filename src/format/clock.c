/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/checksum.h"
#include "format/cursor.h"
#include "format/format.h"

#include <errno.h>

/* The file `clock`: the time at which doubt of the wall clock began, and for how long it has lasted. */

#define MAGIC "WBCLOCK\n"
#define MAGIC_SIZE 8
#define CHECKED (WB_CLOCK_SIZE - 8)

void wb_clock_note_encode(int64_t known, int64_t insisted, uint8_t data[WB_CLOCK_SIZE])
{
    struct wb_writer to = {.data = data, .length = WB_CLOCK_SIZE};

    wb_put_bytes(&to, MAGIC, MAGIC_SIZE);
    wb_put_i64(&to, known);
    wb_put_i64(&to, insisted);
    wb_put_u64(&to, wb_checksum(data, CHECKED));
}

int wb_clock_note_decode(const uint8_t *data, size_t length, int64_t *ret_known, int64_t *ret_insisted)
{
    struct wb_reader from = {.data = data, .length = length};
    const void *magic = wb_get_bytes(&from, MAGIC_SIZE);
    int64_t known = wb_get_i64(&from);
    int64_t insisted = wb_get_i64(&from);
    uint64_t check = wb_get_u64(&from);

    if (from.overflow || length != WB_CLOCK_SIZE || memcmp(magic, MAGIC, MAGIC_SIZE) != 0 ||
        check != wb_checksum(data, CHECKED) || known <= 0 || insisted < 0)
        return -EBADMSG;
    *ret_known = known;
    *ret_insisted = insisted;
    return 0;
}
