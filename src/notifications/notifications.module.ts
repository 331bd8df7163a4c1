import { Module } from '@nestjs/common';
import { TypeOrmModule } from '@nestjs/typeorm';
import { MailServer } from './mail-server.js';
import { NotificationsService } from './notifications.service.js';
import { SentMail } from './sent-mail.entity.js';

@Module({ imports: [TypeOrmModule.forFeature([SentMail])], providers: [MailServer, NotificationsService] })
export class NotificationsModule {}
