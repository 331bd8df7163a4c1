import { BadRequestException, Body, Controller, Delete, Param, ParseUUIDPipe, Post } from '@nestjs/common';
import { Tenant } from '../auth/tenant.decorator.js';
import { FileService, type RemovedBlob } from './file.service.js';

@Controller('blobs')
export class FileController {
  constructor(private readonly files: FileService) {}

  @Post()
  create(@Tenant() tenant: string, @Body() body: unknown): Promise<{ id: string }> {
    const { name, content } = (body ?? {}) as { name?: unknown; content?: unknown };
    if (typeof name !== 'string' || typeof content !== 'string')
      throw new BadRequestException('name and content must be strings');
    return this.files.create(tenant, name, content);
  }

  @Delete(':id')
  remove(@Tenant() tenant: string, @Param('id', ParseUUIDPipe) id: string): Promise<RemovedBlob> {
    return this.files.remove(tenant, id);
  }
}
