export const blobRemoved = 'file.blob.removed';

export interface BlobRemoved {
  readonly path: string;
}
